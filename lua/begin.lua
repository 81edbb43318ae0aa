-- begin: claims the key, or returns what it found instead.
--
-- KEYS[1]  the record
-- KEYS[2]  its tombstone; absent if the claim has no LateRetry
-- ARGV[1]  owner, 16 bytes; a repeated call has the same
-- ARGV[2]  fingerprint, 32 bytes
-- ARGV[3]  lease, µs
-- ARGV[4]  retention, ms
-- ARGV[5]  what to do if a lease ended without an outcome: '1' takes over, '0' returns unknown, and a fence takes over the
--          claim with that fence only
-- ARGV[6]  how the request subscribes if the key is in progress: '0' not at all, '1' with SUBSCRIBE, '2' with SSUBSCRIBE
-- ARGV[7]  '1' if completed must come with the rest of the retention; otherwise absent
-- ARGV[8]  '1' if the caller has seen the tombstone, and cannot name it because its slot moves; otherwise absent
--
-- Returns one string: a status and its values, with spaces between. For each status, the states in which it is returned, and
-- the change of state if there is one:
--   claimed fence attempt takeover remaining-µs operation
--                                   absent, FAILED, or STARTED with its lease over -> STARTED;
--                                   a repeated call of the owner of a STARTED record returns the same
--   in-progress remaining-µs        STARTED under another owner; the record notes how the request subscribes
--   unknown fence                   STARTED, lease over, and the claim does not take over
--   (a record)                      COMPLETED; a record begins with its format, a digit, and no status does
--   completed remaining-ms record   COMPLETED, if ARGV[7] is '1'
--   completed remaining-ms          COMPLETED, and the record has 2048 bytes or more: the caller reads it with GET, because Lua
--                                   copies slowly
--   mismatch fingerprint            the record belongs to a request with this fingerprint
--   expired                         absent, or free and without an attempt, but with a tombstone: there was an outcome
--   lost                            FAILED by this owner, or the record notes this owner: this begin comes after its own fail
--   unreadable                      the string is not a record of format 1
--
-- The first write is a SET, so that a full server refuses a new claim. Its NX refuses an empty string, which GETRANGE cannot
-- tell from an absent key.
local record = redis.call('GETRANGE', KEYS[1], '0', '2047')
if record == '' then -- most requests find no record; they, and plain replays, save the time to define the functions below
  if ARGV[8] or KEYS[2] and redis.call('EXISTS', KEYS[2]) == 1 then
    return redis.call('EXISTS', KEYS[1]) == 1 and 'unreadable' or 'expired'
  end
  local time = redis.call('TIME')
  local fence = string.sub('0000000000', #time[1] + 1) .. time[1] .. string.sub('000000', #time[2] + 1) .. time[2]
  local lease_end = string.format('%016.0f', time[1] * 1000000 + time[2] + ARGV[3])
  local claim = '1100000001' .. fence .. ARGV[2] .. lease_end .. ARGV[1]
  if not redis.call('SET', KEYS[1], claim, 'PX', ARGV[4], 'NX') then return 'unreadable' end
  return 'claimed ' .. fence .. ' 1 0 ' .. ARGV[3] .. ' ' .. fence
end
if not ARGV[7] and string.sub(record, 1, 2) == '12' and string.sub(record, 27, 58) == ARGV[2] then
  return #record < 2048 and record or 'completed 0'
end

-- [record.lua]

local stored = record
record = in_format_1(record)
if not readable(record) then return 'unreadable' end

local found = state(record)
if found ~= COMPLETED then
  local own = owner(record) == ARGV[1]
  if own and found == FAILED or notes(record, ARGV[1]) then return 'lost' end
  if own then return claimed(fence(record), attempt(record), history(record), lease_end(record) - now(), operation(record)) end
end
local free = found == FAILED and fingerprint(record) == string.rep('\0', 32)
if free and attempt(record) == 0 and (ARGV[8] or KEYS[2] and redis.call('EXISTS', KEYS[2]) == 1) then return 'expired' end
if not free and fingerprint(record) ~= ARGV[2] then return 'mismatch ' .. fingerprint(record) end
if found == COMPLETED then
  local left = string.format('completed %.0f', redis.call('PTTL', KEYS[1]))
  return #record < 2048 and left .. ' ' .. record or left
end

local past, waiting = '0', '0'
if found == STARTED then
  local left = lease_end(record) - now()
  if left > 0 then
    if stored ~= record and redis.call('PTTL', KEYS[1]) == -1 then -- the lease must end, so it begins anew
      redis.call('PEXPIRE', KEYS[1], tonumber(string.sub(stored, 11, 23), 10))
    end
    if ARGV[6] ~= '0' then redis.pcall('SETRANGE', KEYS[1], '3', ARGV[6]) end -- a full server refuses; then the request polls
    return string.format('in-progress %.0f', left)
  end
  if ARGV[5] ~= '1' and tonumber(ARGV[5]) ~= fence(record) then return string.format('unknown %.0f', fence(record)) end
  past, waiting = '1', waiters(record)
end
if found == FAILED and not free then past = history(record) == '1' and '1' or '2' end

local time = now()
local next_fence, next_attempt = math.max(fence(record) + 1, time), math.min(attempt(record) + 1, 999999)
local fence_text = string.format('%016.0f', next_fence)
local next_operation, owners = (free or string.sub(record, 5, 10) == '000000') and fence_text or operation(record), noted(record)
if found == FAILED and not notes(record, owner(record)) then owners = string.sub(owners .. owner(record), -256) end
local header = '1' .. STARTED .. past .. waiting .. string.format('%06d', next_attempt) .. fence_text .. ARGV[2]
local lease = string.format('%016.0f', time + ARGV[3])
redis.call('SET', KEYS[1], header .. lease .. ARGV[1] .. next_operation .. owners, 'PX', ARGV[4])
return claimed(next_fence, next_attempt, past, tonumber(ARGV[3]), next_operation)
