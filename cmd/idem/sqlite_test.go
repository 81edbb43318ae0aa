package main

import (
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A path that is mistyped makes no file, and a file of something else gets no tables.
func TestTheCommandMakesNoStoreInAFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "payments.db")
	missing := call(t, "sqlite://"+path, nil, "show", "alice", "K")
	assert.Equal(t, storeFailed, missing.code)
	assert.Contains(t, missing.stderr, "no such file")
	assert.Contains(t, missing.stderr, nothingChanged)
	assert.NoFileExists(t, path)
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	empty := call(t, "sqlite://"+path, nil, "show", "alice", "K")
	assert.Equal(t, storeFailed, empty.code)
	assert.Contains(t, empty.stderr, "has no store in it")
	written, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Empty(t, written)
}

// sqlite:payments.db is a file in this directory. Its name is encoded as in any URL.
func TestAFileMayBeNamedFromThisDirectory(t *testing.T) {
	t.Parallel()
	here, err := os.Getwd()
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "payments #1.db")
	assert.Equal(t, http.StatusOK, send(handler(mustConnect(t, "sqlite://"+path), nil), "alice", "K", "").Code)
	relative, err := filepath.Rel(here, filepath.Join(filepath.Dir(path), url.PathEscape(filepath.Base(path))))
	require.NoError(t, err)
	shown := call(t, "sqlite:"+relative, nil, "show", "alice", "K")
	assert.Zero(t, shown.code)
	assert.Contains(t, shown.stdout, "completed")
	checked := call(t, "sqlite:"+relative, nil, "doctor")
	assert.NotContains(t, checked.stdout, "synchronous", "the command has its own settings")
	assert.Contains(t, []int{0, finding}, checked.code, "the disk of the machine may be full")
}
