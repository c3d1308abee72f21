-- Bring back the token of a free name that a wrong clock has put ahead.
-- KEYS: the record. ARGV: the token that it must have, µs by which that must be ahead. Answers the new token, or 0.
local record = redis.call('HMGET', KEYS[1], 'token', 'expires_at_us')
local token = tonumber(record[1]) or 0
if token ~= tonumber(ARGV[1]) or token <= now + ARGV[2] or (tonumber(record[2]) or 0) > now then
  return 0
end
redis.call('HSET', KEYS[1], 'token', digits(now))
return now
