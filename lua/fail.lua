-- fail: ends a run without an outcome. The key can be claimed again at once.
--
-- KEYS[1]  the record
-- ARGV[1]  owner
-- ARGV[2]  fence; '0' if the caller has no response to its begin
-- ARGV[3]  retention, ms
-- ARGV[4]  '1' if the run had no effects, '2' if there was no run, otherwise '0'. '1' and '2' make the record free for a request
--          with another fingerprint, unless an earlier run may have had effects. '2' also gives the attempt back
-- ARGV[5]  cause, text
-- ARGV[6]  lease, ms
--
-- Returns, and changes the state:
--   'ok'          STARTED -> FAILED; a repeated call of this claim returns the same.
--                 With fence '0' also absent -> FAILED and free, for one lease; a later begin of this owner is then lost
--   'gone'        absent, and the fence is not '0'; nothing changes
--   'lost'        another claim, or COMPLETED. With fence '0' a STARTED or FAILED record of another owner notes this owner, and
--                 a free one lives for at least one lease from then on. Also absent, if the fence is '0' and the server has no
--                 memory for a record
--   'unreadable'  the string is not a record of format 1; nothing changes
--
-- A full server must record the end of a run. It accepts a script whose first write needs no memory, so PEXPIRE is sent
-- first. The TTL of a record that notes an owner usually stays, so there PEXPIRE is sent first only to prolong it, and otherwise
-- only after a write was refused.
local record = redis.call('GETRANGE', KEYS[1], '0', '599') -- enough for all fields; long outcomes are not copied

-- [record.lua]

-- failed returns a FAILED record. beginning is a record up to its owner; its state and mark (byte 4) are replaced.
local function failed(mark, beginning, claim_operation, owners, cause)
  return '1' .. FAILED .. history(beginning) .. mark .. string.sub(beginning, 5) ..
    claim_operation .. string.format('%02d', #owners / 16) .. owners .. cause
end

-- withdraw makes a record for an absent key. A full server refuses that, but it refuses the begin as well.
local function withdraw()
  local fence_text = string.format('%016.0f', now())
  local beginning = '1' .. FAILED .. '01000000' .. fence_text .. string.rep('\0', 32) .. fence_text .. ARGV[1]
  local answer = redis.pcall('SET', KEYS[1], failed('1', beginning, NONE, '', ARGV[5]), 'PX', ARGV[6], 'NX')
  if not answer then return 'unreadable' end -- the key holds an empty string
  if answer.err then return string.find(answer.err, 'OOM') and 'lost' or answer end
  return 'ok'
end

-- note adds the owner to those that the record of another claim notes. A free record must not end before this owner's lease
-- would. Other records keep their TTL, because they hold the key for one request.
local function note()
  local owners = string.sub(noted(record) .. ARGV[1], -256)
  local of = string.sub(record, 5, 10) == '000000' and NONE or operation(record)
  local from, text = '90', of .. owners
  if state(record) == FAILED then
    local cause = string.sub(record, 109 + #noted(record))
    if waiters(record) == '0' then cause = string.sub(record, attempt(record) == 1 and 91 or 107) end
    local mark = waiters(record) == '2' and '2' or '1'
    from, text = '0', failed(mark, string.sub(record, 1, 90), of, owners, cause)
  end
  local left = redis.call('PTTL', KEYS[1])
  local free = state(record) == FAILED and fingerprint(record) == string.rep('\0', 32)
  if free and left >= 0 and left < tonumber(ARGV[6]) then
    redis.call('PEXPIRE', KEYS[1], ARGV[6])
  elseif type(redis.pcall('SETRANGE', KEYS[1], from, text)) == 'number' then
    return
  elseif left > 0 then
    redis.call('PEXPIRE', KEYS[1], left)
  end
  redis.call('SETRANGE', KEYS[1], from, text)
end

if record == '' then
  if ARGV[2] == '0' then return withdraw() end
  return redis.call('EXISTS', KEYS[1]) == 1 and 'unreadable' or 'gone'
end
record = in_format_1(record, ARGV[1], ARGV[2])
if not readable(record) then return 'unreadable' end
if state(record) == COMPLETED then return 'lost' end
if not holds(record, ARGV[1], ARGV[2]) then
  if ARGV[2] == '0' and not notes(record, ARGV[1]) then note() end
  return 'lost'
end
if state(record) == FAILED then return 'ok' end
local bound = ARGV[4] ~= '0' and history(record) == '0' and string.rep('\0', 32) or fingerprint(record)
local beginning = string.sub(record, 1, 26) .. bound .. string.sub(record, 59, 90)
local mark = ARGV[4] == '2' and '2' or '1'
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('SET', KEYS[1], failed(mark, beginning, operation(record), noted(record), ARGV[5]), 'PX', ARGV[3])
wake(record)
return 'ok'
