-- fail: the run ended without an outcome to keep; the key may be claimed again at once.
--
-- KEYS[1]  the record
-- ARGV[1]  owner
-- ARGV[2]  fence; '0' when begin's answer never came
-- ARGV[3]  retention, ms
-- ARGV[4]  '1' to free the key for a request with another fingerprint, if no earlier run may have had effects; '2' if there
--          was no run: this frees it, too, and gives the attempt back; else '0'
-- ARGV[5]  cause, text
-- ARGV[6]  lease, ms
--
-- Returns:
--   'ok'          STARTED -> FAILED; the same answer again to the claim that failed;
--                 with fence '0' absent -> FAILED, free for a lease: the begin that comes later is told that it is lost
--   'lost'        another claim, or COMPLETED; with fence '0' a STARTED or FAILED record notes the owner for its begin.
--                 Also absent, unless the fence is '0' and the server takes a record more
--   'unreadable'  not a record of format 1
--
-- A run that has ended must be recorded, also by a server that is full. It accepts a script whose first write needs no
-- memory, so a PEXPIRE goes first. A withdrawal that needs no new record tries without, as its TTL is to stay as it is.
local record = redis.call('GETRANGE', KEYS[1], '0', '599') -- not a whole outcome: a fail follows each replay that had no answer

-- [record.lua]

-- failed is the record that this fail leaves; beginning is all of it up to the owner, but for what is said here.
local function failed(mark, beginning, claim_operation, owners, cause)
  return '1' .. FAILED .. history(beginning) .. mark .. string.sub(beginning, 5) ..
    claim_operation .. string.format('%02d', #owners / 16) .. owners .. cause
end

-- withdraw leaves a record where there is none. A server that is full refuses a begin as well.
local function withdraw()
  local fence_text = string.format('%016.0f', now())
  local beginning = '1' .. FAILED .. '01000000' .. fence_text .. string.rep('\0', 32) .. fence_text .. ARGV[1]
  local answer = redis.pcall('SET', KEYS[1], failed('1', beginning, NONE, '', ARGV[5]), 'PX', ARGV[6], 'NX')
  if not answer then return 'unreadable' end -- it was emptied
  if answer.err then return string.find(answer.err, 'OOM') and 'lost' or answer end
  return 'ok'
end

-- note adds the owner to the noted ones of another's record.
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
  if type(redis.pcall('SETRANGE', KEYS[1], from, text)) == 'number' then return end
  local left = redis.call('PTTL', KEYS[1])
  if left > 0 then redis.call('PEXPIRE', KEYS[1], left) end
  redis.call('SETRANGE', KEYS[1], from, text)
end

if record == '' then
  if ARGV[2] == '0' then return withdraw() end
  return redis.call('EXISTS', KEYS[1]) == 1 and 'unreadable' or 'lost'
end
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
