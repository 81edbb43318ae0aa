package replay

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var fingerprint = [32]byte{1}

func key(i int) [32]byte { return [32]byte{byte(i >> 8), byte(i)} }

func (c *Cache[V]) put(i int, outcome string) {
	c.Put(key(i), fingerprint, []byte(outcome), time.Now(), time.Hour)
}

func (c *Cache[V]) get(i int) *Record[V] {
	k := key(i)
	return c.Get(&k)
}

func TestANilCacheHoldsNothing(t *testing.T) {
	c := New[string](0)
	assert.Nil(t, c)
	c.put(1, "x")
	k := key(1)
	c.Prepare(&k, []byte("x"), "y", 1)
	c.Evict(&k)
	assert.Nil(t, c.get(1))
}

func TestARecordIsHeldUntilItsRecordEndsAndForAMinuteAtMost(t *testing.T) {
	for name, test := range map[string]struct{ ttl, held time.Duration }{
		"a minute":            {time.Hour, time.Minute},
		"the record's end":    {time.Second, time.Second},
		"a record that ended": {0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, k := New[string](1<<20), key(1)
				c.Put(k, fingerprint, []byte("x"), time.Now(), test.ttl)
				if test.held > 0 {
					time.Sleep(test.held - time.Nanosecond)
					require.NotNil(t, c.Get(&k))
					time.Sleep(time.Nanosecond)
				}
				assert.Nil(t, c.Get(&k))
				assert.Zero(t, c.bytes)
			})
		})
	}
}

// Between the moment when a replay is begun and the one when it is prepared, the record may have gone, or be another.
func TestWhatIsPreparedOfOneOutcomeIsNotKeptBesideAnother(t *testing.T) {
	c, k := New[string](1<<20), key(1)
	c.Prepare(&k, []byte("early"), "of early", 8)
	assert.Nil(t, c.get(1))

	c.put(1, "early")
	c.put(1, "later")
	c.Prepare(&k, []byte("early"), "of early", 8)
	assert.Equal(t, "later", string(c.get(1).Outcome))
	assert.Empty(t, c.get(1).Prepared)

	c.Prepare(&k, []byte("later"), "of later", 8)
	assert.Equal(t, "of later", c.get(1).Prepared)
	assert.Equal(t, fingerprint, c.get(1).Fingerprint)
	assert.Equal(t, RecordBytes+len("later")+8, c.bytes)
}

func TestWhatDoesNotFitBesideItsOutcomeIsNotKept(t *testing.T) {
	c, k := New[string](RecordBytes+10), key(1)
	c.put(1, "x")
	c.Prepare(&k, []byte("x"), "of x", 10)
	assert.Empty(t, c.get(1).Prepared)
	c.put(2, "longer than ten bytes")
	assert.Nil(t, c.get(2))
	assert.NotNil(t, c.get(1), "nothing is evicted for a record that does not fit")
}

// Between the moment when a record is seen to be over and the one when it is dropped, the key may get another.
func TestANewRecordIsNotEvictedForTheExpiredOne(t *testing.T) {
	c := New[string](1 << 20)
	c.put(1, "early")
	old := c.get(1)
	c.put(1, "later")
	c.evictExpired(old)
	assert.Equal(t, "later", string(c.get(1).Outcome))
	assert.Equal(t, RecordBytes+len("later"), c.bytes)
}

func TestAnEvictedKeyIsGone(t *testing.T) {
	c, k := New[string](1<<20), key(1)
	c.put(1, "x")
	c.Evict(&k)
	assert.Nil(t, c.get(1))
	assert.Zero(t, c.bytes)
	assert.Zero(t, c.recent.Len())
}

// A full cache of referenced records is not walked through while everybody waits for the lock.
func TestOneEvictionGivesFewSecondChances(t *testing.T) {
	const records = 1000
	c := New[string](records * (RecordBytes + 1))
	for i := range records {
		c.put(i, "x")
		c.get(i)
	}
	c.put(records, "x")
	moved := 0
	for element := c.recent.Front(); element != nil; element = element.Next() {
		if !element.Value.(*Record[string]).referenced.Load() {
			moved++
		}
	}
	assert.Equal(t, secondChances+1, moved, "and the new one")
	assert.Len(t, c.records, records)
	assert.Equal(t, c.limit, c.bytes)
}

func TestAnExpiredRecordGetsNoSecondChance(t *testing.T) {
	c := New[string](2 * (RecordBytes + 1))
	c.put(1, "x")
	c.get(1)
	c.records[key(1)].expires = time.Now()
	c.put(2, "x")
	c.put(3, "x")
	assert.NotNil(t, c.get(2))
}

func TestAnUnknownKeyIsNotEvicted(t *testing.T) {
	c := New[string](2 * RecordBytes)
	c.put(1, "x")
	k := key(2)
	c.Evict(&k)
	assert.NotNil(t, c.get(1))
}

func TestARecordMayFillTheCache(t *testing.T) {
	c := New[string](RecordBytes + 3)
	c.put(1, "xxxx")
	assert.Nil(t, c.get(1), "a byte too long")
	c.put(1, "xx")
	k := key(1)
	c.Prepare(&k, []byte("xx"), "y", 2)
	assert.Empty(t, c.get(1).Prepared, "a byte too long")
	c.Prepare(&k, []byte("xx"), "y", 1)
	assert.Equal(t, "y", c.get(1).Prepared)
	c.put(2, "xxx")
	assert.NotNil(t, c.get(2))
}

func TestARecordThatNobodyHasAskedForTakesNoSecondChance(t *testing.T) {
	c := New[string]((secondChances + 2) * (RecordBytes + 1))
	for i := range secondChances + 2 {
		c.put(i, "x")
	}
	c.get(secondChances) // the last but one
	c.put(1000, strings.Repeat("x", secondChances*(RecordBytes+1)+1))
	assert.NotNil(t, c.get(secondChances), "its chance was not taken by those before it")
	assert.Nil(t, c.get(secondChances+1))
}
