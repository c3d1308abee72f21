-- Read records as they stand. KEYS: the records.
-- Answers the time in µs, then for each record its fields; false for a key that is none of ours.
local answer = {now}
for number, key in ipairs(KEYS) do
  local record = redis.pcall('HMGET', key, 'token', 'expires_at_us', 'kept_until_us', 'last_tick_us',
    'holder', 'grant_id', 'session_id', 'acquired_at_us')
  answer[number + 1] = not record.err and record
end
return answer
