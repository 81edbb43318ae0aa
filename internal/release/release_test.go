package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// files are a repository with two modules and a command, which needs both.
var files = map[string]string{
	"CHANGELOG.md":               "## Unreleased\n\n## 0.2.0 - today\n\n## 0.1.0 - yesterday\n",
	"go.mod":                     "module example.com/pay\n\ngo 1.24\n",
	"pay.go":                     "package pay\n\nfunc Once() {}\n",
	"tests/pay_test.go":          "package tests\n",
	"internal/a/a.go":            "package a\n",
	"store/go.mod":               "module example.com/pay/store\n\ngo 1.24\n\nrequire example.com/pay v0.0.0\n\nreplace example.com/pay => ..\n",
	"store/store.go":             "package store\n\nimport \"example.com/pay\"\n\nfunc Keep() { pay.Once() }\n",
	"bench/go.mod":               "module example.com/pay/bench\n\ngo 1.24\n",
	"bench/bench.go":             "package bench\n",
	"cmd/pay/go.mod":             "module example.com/pay/cmd/pay\n\ngo 1.24\n\nrequire (\n\texample.com/pay v0.0.0\n\texample.com/pay/store v0.0.0\n)\n\nreplace (\n\texample.com/pay => ../..\n\texample.com/pay/store => ../../store\n)\n",
	"cmd/pay/main.go":            command,
	"examples/start/go.mod":      "module example.com/pay/examples/start\n\ngo 1.24\n",
	"examples/start/one/main.go": "package main\n\nimport \"example.com/pay/store\"\n\nfunc main() { store.Keep() }\n",
}

const command = `package main

import (
	"fmt"
	"runtime/debug"

	"example.com/pay"
	"example.com/pay/store"
)

func main() {
	pay.Once()
	store.Keep()
	info, _ := debug.ReadBuildInfo()
	fmt.Println(info.Main.Version)
}
`

// repository returns a repository with one commit: files, as they are after changes.
func repository(t *testing.T, changes map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		write(t, dir, name, text)
	}
	for name, text := range changes {
		write(t, dir, name, text)
	}
	git(t, dir, "init", "-q", "-b", "main")
	commit(t, dir)
	return dir
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o750))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, err := run(t.Context(), dir, nil, "git", append([]string{"-c", "user.name=test", "-c", "user.email=test@example.com"}, args...)...)
	require.NoError(t, err)
	return out
}

func commit(t *testing.T, dir string) {
	t.Helper()
	git(t, dir, "add", "-A")
	git(t, dir, "commit", "-q", "-m", "change")
}

func TestARepositoryIsPublishedToAProxyAndFetched(t *testing.T) {
	t.Setenv("GOPROXY", "off")
	t.Setenv("TMPDIR", t.TempDir())
	dir := repository(t, nil)
	before := git(t, dir, "rev-parse", "HEAD")
	var out strings.Builder
	require.NoError(t, check(t.Context(), &out, dir, "v0.1.0"))
	for _, line := range []string{
		"installed: v0.1.0", "built: the program of docs/start.md for one", "API: there is no earlier version",
		"git tag -a v0.1.0 -m v0.1.0\ngit tag -a store/v0.1.0 -m store/v0.1.0\ngit tag -a cmd/pay/v0.1.0 -m cmd/pay/v0.1.0\n",
	} {
		assert.Contains(t, out.String(), line)
	}
	assert.NotContains(t, out.String(), "bench")
	assert.Equal(t, before, git(t, dir, "rev-parse", "HEAD"))
	assert.Empty(t, git(t, dir, "status", "--porcelain")+git(t, dir, "tag"), "the tree is as it was")

	// The commands that it prints make the commit whose modules were checked.
	_, commands, _ := strings.Cut(out.String(), "do it:\n\n")
	commands, _, _ = strings.Cut(commands, "git push")
	_, err := run(t.Context(), dir, []string{"GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t", "GIT_COMMITTER_NAME=t", "GIT_COMMITTER_EMAIL=t"}, "sh", "-ec", commands)
	require.NoError(t, err)
	assert.Equal(t, "cmd/pay/v0.1.0\nstore/v0.1.0\nv0.1.0", git(t, dir, "tag"))
	mod := git(t, dir, "show", "cmd/pay/v0.1.0:cmd/pay/go.mod")
	assert.NotContains(t, mod, "replace")
	assert.Contains(t, mod, "example.com/pay/store v0.1.0")
}

func TestChangesOfTheAPIAreToldSinceTheLastTag(t *testing.T) {
	t.Setenv("GOPROXY", "off")
	t.Setenv("TMPDIR", t.TempDir())
	dir := repository(t, nil)
	git(t, dir, "tag", "-a", "v0.1.0", "-m", "v0.1.0")
	write(t, dir, "pay.go", "package pay\n\nfunc Once() {}\n\nfunc Twice() {}\n")
	write(t, dir, "store/store.go", "package store\n\nimport \"example.com/pay\"\n\nfunc Keep(...int) { pay.Once() }\n")
	commit(t, dir)
	var out strings.Builder
	require.NoError(t, check(t.Context(), &out, dir, "v0.2.0"))
	assert.Regexp(t, `(?s)API of example.com/pay since v0.1.0: \nCompatible changes:.*Twice: added`, out.String())
	assert.Regexp(t, `(?s)API of example.com/pay/store since v0.1.0: \nIncompatible changes:.*Keep: changed from func\(\)`, out.String())
}

func TestWhatMustNotBeTaggedIsRefused(t *testing.T) {
	t.Setenv("GOPROXY", "off")
	for name, test := range map[string]struct {
		version, want string
		changes       map[string]string
		after         func(dir string)
	}{
		"no version":                     {"0.1", `-version "0.1" is no version`, nil, nil},
		"no changes":                     {"v0.3.0", `has no section "## 0.3.0"`, nil, nil},
		"changes of a pre-release alone": {"v0.4.0", `has no section "## 0.4.0"`, map[string]string{"CHANGELOG.md": "## 0.4.0-rc.1\n"}, nil},
		"a changed tree":                 {"v0.1.0", "commit them first", nil, func(dir string) { write(t, dir, "pay.go", "package pay\n") }},
		"a tag again":                    {"v0.1.0", "the tag v0.1.0 is there", nil, func(dir string) { git(t, dir, "tag", "v0.1.0") }},
		"a module that needs what only the tree has": {"v0.1.0", "example.com/pay/internal/b", map[string]string{
			"internal/b/go.mod": "module example.com/pay/internal/b\n\ngo 1.24\n", "internal/b/b.go": "package b\n",
			"store/go.mod": "module example.com/pay/store\n\ngo 1.24\n\nrequire example.com/pay/internal/b v0.0.0\n\n" +
				"replace example.com/pay/internal/b => ../internal/b\n",
			"store/store.go": "package store\n\nimport _ \"example.com/pay/internal/b\"\n\nfunc Keep() {}\n",
		}, nil},
		"a package that does not compile": {"v0.1.0", "undefined: missing", map[string]string{"pay.go": "package pay\n\nfunc Once() { missing() }\n"}, nil},
		"a program of the documentation that does not compile": {"v0.1.0", "undefined: store.Gone", map[string]string{
			"examples/start/one/main.go": "package main\n\nimport \"example.com/pay/store\"\n\nfunc main() { store.Gone() }\n",
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			dir := repository(t, test.changes)
			if test.after != nil {
				test.after(dir)
			}
			var out strings.Builder
			assert.ErrorContains(t, check(t.Context(), &out, dir, test.version), test.want)
		})
	}
}
