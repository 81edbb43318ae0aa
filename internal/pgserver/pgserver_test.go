package pgserver

import (
	"path"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestADatabaseIsEmptyAndTheTestsOwn(t *testing.T) {
	one, other, s := path.Base(Database(t)), path.Base(Database(t)), Shared(t)
	_, err := s.query(one, "CREATE TABLE here ()", patience)
	require.NoError(t, err)
	for database, tables := range map[string]string{one: "1", other: "0"} {
		found, err := s.query(database, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'", patience)
		require.NoError(t, err)
		assert.Equal(t, tables, found)
	}
}

func TestAQueryReturnsAValueOrTheError(t *testing.T) {
	s := Start(t)
	assert.Equal(t, "2", s.execute(t, "VALUES (1, 5), (2, 6)"))
	assert.Empty(t, s.execute(t, "SELECT NULL"))
	_, err := s.query("postgres", "SELECT nothing", patience)
	require.ErrorContains(t, err, `column "nothing" does not exist`)
	_, err = s.query("nothing", "SELECT 1", patience)
	require.ErrorContains(t, err, `database "nothing" does not exist`)
	s.Kill()
	require.False(t, s.answers())
	s.Restart(t)
	assert.True(t, s.answers())
}

func TestVersionsAreNumbers(t *testing.T) {
	assert.Greater(t, version("/usr/lib/postgresql/17/bin"), version("/usr/lib/postgresql/9.6/bin"))
	assert.Greater(t, version("/usr/lib/postgresql/15/bin"), version("/usr/lib/postgresql/9/bin"))
}
