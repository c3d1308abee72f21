-- Do once all that the other scripts do, and leave nothing behind. KEYS: a record that is no lock's.
redis.call('HSET', KEYS[1], 'token', digits(now))
redis.call('HMGET', KEYS[1], 'token')
redis.call('PEXPIRE', KEYS[1], 1000)
redis.call('PERSIST', KEYS[1])
redis.call('PUBLISH', KEYS[1] .. ':changed', '')
return redis.call('HDEL', KEYS[1], 'token')
