-- End grants from outside: a session is closed, or an operator takes a name away.
-- KEYS: the records. ARGV: ms to remember the records, then the grant id that each must still have.
-- Answers how many were ended.
local ended = 0
for number, key in ipairs(KEYS) do
  local record = redis.pcall('HMGET', key, 'grant_id', 'expires_at_us', 'waiting_until_us')
  if record[1] == ARGV[number + 1] and (tonumber(record[2]) or 0) > now then
    redis.call('HDEL', key, 'grant_id', 'expires_at_us')
    redis.call('PEXPIRE', key, ARGV[1])
    if (tonumber(record[3]) or 0) > now then
      redis.call('PUBLISH', key .. ':changed', '')
    end
    ended = ended + 1
  end
end
return ended
