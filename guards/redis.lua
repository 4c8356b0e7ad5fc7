-- holdfast_enter, a guard by Holdfast for data in Redis; see doc/guards.md. It enters:
@if HERE
--   EVAL script 2 FENCE ROW TOKEN
-- and later runs a command if TOKEN still counts, as one step:
--   EVAL script N FENCE ROW KEY... TOKEN COMMAND ARG...
-- ROW is the lock's row, @PREFIX@ and the key. FENCE keeps the token that counts: choose a name
-- that contains the lock's key. N is the number of names.
@end
@if ELSEWHERE
--   EVAL script 1 FENCE TOKEN
-- and later runs a command if TOKEN still counts, as one step:
--   EVAL script N FENCE KEY... TOKEN COMMAND ARG...
-- FENCE keeps the greatest token that has entered: choose a name that contains the lock's key. N is
-- the number of names.
@end
-- Errors: LOST, the token is over; UNENTERED, no holder has entered before the command; MISNAMED,
-- the command has a key that isn't among KEY..., or moves one to another database.
local fence, token = KEYS[1], tonumber(ARGV[1] or '')
if not fence or not token or token < 1 or token >= 9007199254740992
    or token ~= math.floor(token) then
  return redis.error_reply('LOST enter needs a fence and a token')
end
local lowest, first = token, 2
@if HERE
first = 3
if not KEYS[2] then return redis.error_reply('LOST enter needs the name of the lock') end
local row = redis.call('HMGET', KEYS[2], 'format', 'owner', 'token', 'expires_us', 'more')
local time = redis.call('TIME')
local now, lives = time[1] * 1000000 + time[2], false
-- Of several holders the one with the smallest token is admitted, too.
local function holds(granted, expires, flags)
  granted, expires, flags = tonumber(granted), tonumber(expires or 0), tonumber(flags or 0)
  if not granted or (expires ~= 0 and expires <= now) or flags % 8 >= 4 then return end
  if granted == token then lives = true end
  if granted < lowest then lowest = granted end
end
if row[1] == '2' and row[2] and row[2] ~= '' then
  local more = row[5] and row[5] ~= '' and cjson.decode(row[5]) or {}
  for name in pairs(more) do
    if not (' bell claim_ms flags holders limit mode owner session token '):find(
        ' ' .. name .. ' ', 1, true) then
      return redis.error_reply('LOST the lock says more than this guard knows')
    end
  end
  holds(more.token or row[3], row[4], more.flags)
  for _, other in ipairs(more.holders or {}) do
    holds(other.token, other.expires_us, other.flags)
  end
end
if not lives then return redis.error_reply('LOST this token is over') end
@end
local last = tonumber(redis.call('GET', fence) or '0')
if last > token then
  return redis.error_reply('LOST this token is over: a later one has entered')
end
if not ARGV[2] then
  if lowest > last then redis.call('SET', fence, string.format('%.0f', lowest)) end
  return redis.status_reply('OK')
end
if last < lowest then return redis.error_reply('UNENTERED written without entering') end
local named = {}
for i = first, #KEYS do named[KEYS[i]] = true end
for i = 1, first - 1 do named[KEYS[i]] = nil end
local verb = string.upper(ARGV[2])
local elsewhere = verb == 'MOVE' or verb == 'MIGRATE'
for i = 5, #ARGV do
  elsewhere = elsewhere or verb == 'COPY' and string.upper(ARGV[i]) == 'DB'
end
if elsewhere then return redis.error_reply('MISNAMED a key is not taken to another database') end
local touched = redis.pcall('COMMAND', 'GETKEYS', unpack(ARGV, 2))
if touched.err then return redis.error_reply('MISNAMED no command on keys: ' .. touched.err) end
for _, key in ipairs(touched) do
  if not named[key] then return redis.error_reply('MISNAMED this key is not named as data') end
end
return redis.call(unpack(ARGV, 2))
