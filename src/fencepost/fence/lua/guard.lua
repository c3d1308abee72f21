-- Check the token, raise the mark, and apply the commands: all of them, or none.
-- KEYS: the mark. ARGV: token, grant id, holder, ms after which the mark expires or '0', µs that a token may be ahead of
-- the clock, '1' to undo the commands when one fails; then for each command the number of its words, and the words.
-- Returns {'done', replies}, {'stale', token, grant id, holder}, {'ahead', time} or {'failed', which command, error}.
local AHEAD, TAKE_BACK, FIRST = 5, 6, 7

local seconds_and_us = redis.call('TIME')
local now = seconds_and_us[1] * 1000000 + seconds_and_us[2]
local mark = redis.call('HMGET', KEYS[1], 'token', 'grant_id', 'holder')
local offered, raised = tonumber(ARGV[1]), tonumber(mark[1])
if offered > now + ARGV[AHEAD] then
  return {'ahead', string.format('%.0f', now)}
end
if raised and (offered < raised or (offered == raised and mark[2] ~= ARGV[2])) then
  return {'stale', mark[1], mark[2], mark[3]}
end

local commands, at = {}, FIRST
while at <= #ARGV do
  local words = tonumber(ARGV[at])
  commands[#commands + 1] = {unpack(ARGV, at + 1, at + words)}
  at = at + words + 1
end

-- The server has no rollback. So before anything is written, check that each command exists and is complete, and save
-- the values of its keys. A single command is atomic by itself.
local before = {}
if #commands > 1 and ARGV[TAKE_BACK] == '1' then
  for number, command in ipairs(commands) do
    local keys = redis.pcall('COMMAND', 'GETKEYS', unpack(command))
    if keys.err then
      return {'failed', number, keys.err}
    end
    for _, key in ipairs(keys) do
      if key == KEYS[1] then
        return {'failed', number, 'a command must not write to the key of the fence itself'}
      end
      before[key] = before[key] or {redis.call('DUMP', key), redis.call('PTTL', key)}
    end
  end
end

if raised ~= offered or mark[2] ~= ARGV[2] then
  redis.call('HSET', KEYS[1], 'token', ARGV[1], 'grant_id', ARGV[2], 'holder', ARGV[3])
  if ARGV[4] ~= '0' then
    redis.call('PEXPIRE', KEYS[1], ARGV[4])
  end
end

local answers = {}
for number, command in ipairs(commands) do
  local answer = redis.pcall(unpack(command))
  if type(answer) == 'table' and answer.err then
    for key, was in pairs(before) do
      if was[1] then
        redis.call('RESTORE', key, math.max(was[2], 0), was[1], 'REPLACE')
      else
        redis.call('DEL', key)
      end
    end
    return {'failed', number, answer.err}
  end
  answers[number] = answer
end
return {'done', answers}
