-- Say that somebody waits for a change, so that the release is announced; but only if nothing has changed yet.
-- KEYS: the record. ARGV: the grant id that was seen ('' if the name was kept closed), µs for which to wait.
-- Answers the µs until the name is free by itself, or 0 if what was seen is no longer true.
local record = redis.call('HMGET', KEYS[1], 'grant_id', 'expires_at_us', 'kept_until_us', 'waiting_until_us')
local is_held = (tonumber(record[2]) or 0) > now
if (is_held and record[1] or '') ~= ARGV[1] then
  return 0
end
local free_at = tonumber(is_held and record[2] or record[3]) or 0
if free_at <= now then
  return 0
end
if (tonumber(record[4]) or 0) < now + ARGV[2] then
  redis.call('HSET', KEYS[1], 'waiting_until_us', digits(now + ARGV[2]))
end
return free_at - now
