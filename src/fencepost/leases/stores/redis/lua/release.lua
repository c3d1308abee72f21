-- Let go of a name, if the grant is the current one.
-- KEYS: the record. ARGV: grant id, µs to keep it closed, tick in µs to mark as done or '', ms to remember the record,
-- '1' if this is the second try of one call. Answers 1 if it was let go, 0 if it was not current, and -1 if it is not
-- now but may have been at the first try: it was let go then, and taken by somebody else, or it had ended before.
local record = redis.call('HMGET', KEYS[1], 'grant_id', 'expires_at_us', 'last_tick_us', 'waiting_until_us')
if record[1] ~= ARGV[1] then
  return -tonumber(ARGV[5])
end
if not record[2] then
  return tonumber(ARGV[5])  -- let go before: by the first try, whose reply was lost, or by another call
end
if tonumber(record[2]) <= now then
  return 0
end

-- What a full server may refuse comes first, so that the name is not let go by halves.
if ARGV[2] ~= '0' then
  redis.call('HSET', KEYS[1], 'kept_until_us', digits(now + ARGV[2]))
end
local tick = tonumber(ARGV[3])
if tick and tick > (tonumber(record[3]) or tick - 1) then
  redis.call('HSET', KEYS[1], 'last_tick_us', ARGV[3])
end
redis.call('HDEL', KEYS[1], 'expires_at_us')
redis.call('PEXPIRE', KEYS[1], ARGV[4])
if (tonumber(record[4]) or 0) > now then
  redis.call('PUBLISH', KEYS[1] .. ':changed', '')
end
return 1
