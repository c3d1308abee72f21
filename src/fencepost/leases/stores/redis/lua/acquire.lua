-- Take a name if it is free.
-- KEYS: the record. ARGV: grant id, session id, holder, ttl in µs, floor, tick in µs or '', '1' if at most once.
-- Answers {'granted', token}, {'held', token, µs until it is free, grant id, holder} or {'done', last tick}.
local record = redis.call('HMGET', KEYS[1],
  'token', 'expires_at_us', 'grant_id', 'kept_until_us', 'last_tick_us', 'holder')
local token = tonumber(record[1]) or 0
local expires_at = tonumber(record[2]) or 0
if expires_at > now then
  if record[3] ~= ARGV[1] then
    return {'held', token, expires_at - now, record[3], record[6]}
  end
  -- The first reply was lost. Renewals since then did not know of this grant: it begins its ttl anew.
  redis.call('HSET', KEYS[1], 'expires_at_us', digits(now + ARGV[4]))
  return {'granted', token}
end

local kept_until = tonumber(record[4]) or 0
if kept_until > now then
  return {'held', token, kept_until - now}
end

local tick, last_tick = tonumber(ARGV[6]), tonumber(record[5])
if tick and last_tick and tick <= last_tick then
  return {'done', last_tick}
end

token = math.max(token + 1, tonumber(ARGV[5]), now)
redis.call('HSET', KEYS[1], 'token', digits(token), 'grant_id', ARGV[1], 'session_id', ARGV[2], 'holder', ARGV[3],
  'acquired_at_us', digits(now), 'expires_at_us', digits(now + ARGV[4]))
redis.call('PERSIST', KEYS[1])
if record[4] then
  redis.call('HDEL', KEYS[1], 'kept_until_us')
end
if tick and ARGV[7] == '1' then
  redis.call('HSET', KEYS[1], 'last_tick_us', ARGV[6])
end
return {'granted', token}
