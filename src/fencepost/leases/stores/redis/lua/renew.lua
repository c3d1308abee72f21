-- Prolong grants, or with a ttl of 0 only look at them. One that has expired is never revived.
-- KEYS: the records. ARGV: ttl in µs, then the grant id that each must still have.
-- Answers the numbers of those that are gone, counted from 1.
local expires_at = digits(now + ARGV[1])
local gone = {}
for number, key in ipairs(KEYS) do
  local record = redis.pcall('HMGET', key, 'grant_id', 'expires_at_us')
  if record[1] ~= ARGV[number + 1] or (tonumber(record[2]) or 0) <= now then
    gone[#gone + 1] = number
  elseif ARGV[1] ~= '0' then
    redis.call('HSET', key, 'expires_at_us', expires_at)
  end
end
return gone
