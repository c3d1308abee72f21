-- Put before every script that judges time. The server's clock is the only one; it stands still within a script.
local seconds_and_us = redis.call('TIME')
local now = seconds_and_us[1] * 1000000 + seconds_and_us[2]

-- Microseconds are exact in Lua's doubles (below 2^53), but its own way of printing keeps only 14 digits of them.
local function digits(number)
  return string.format('%.0f', number)
end
