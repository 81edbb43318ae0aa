package faults_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var checkID = regexp.MustCompile(`\b[A-Z]{3}-[0-9]{2}\b`)

// quotedChecks returns the ids of checks that files of the tree quote, each with these files. The page of the checks itself is
// left out.
func quotedChecks(t *testing.T) map[string][]string {
	t.Helper()
	quoted := map[string][]string{}
	err := filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || path == "../docs/checks.md" || !slices.Contains([]string{".go", ".md", ".lua"}, filepath.Ext(path)) {
			return err
		}
		text, err := os.ReadFile(path)
		for _, id := range checkID.FindAllString(string(text), -1) {
			if id != "UTF-16" {
				quoted[id] = append(quoted[id], strings.TrimPrefix(path, "../"))
			}
		}
		return err
	})
	require.NoError(t, err)
	return quoted
}

// testFiles returns the names of all tests, with the files that declare them. Methods of suites come without their type.
func testFiles(t *testing.T) map[string][]string {
	t.Helper()
	names, _ := declared(t)
	tests := map[string][]string{}
	for name, files := range names {
		name = name[strings.LastIndex(name, ".")+1:]
		if strings.HasPrefix(name, "Test") || strings.HasPrefix(name, "Fuzz") {
			tests[name] = append(tests[name], files...)
		}
	}
	return tests
}

// docs/checks.md defines every id that code, tests and pages quote. Each of its rows names tests that exist, and a file that
// declares one of them quotes the id.
func TestTheListOfChecksIsWhatTestsQuote(t *testing.T) {
	page, err := os.ReadFile("../docs/checks.md")
	require.NoError(t, err)
	quoted, tests := quotedChecks(t), testFiles(t)
	rows := regexp.MustCompile(`(?m)^\| ([A-Z]{3}-[0-9]{2}) \| .+ \| (.+) \|$`).FindAllStringSubmatch(string(page), -1)
	require.Greater(t, len(rows), 100)
	defined := map[string]bool{}
	for _, row := range rows {
		id := row[1]
		assert.False(t, defined[id], "%s is defined twice", id)
		defined[id] = true
		isQuoted := false
		names := regexp.MustCompile("`((?:Test|Fuzz)\\w+)`").FindAllStringSubmatch(row[2], -1)
		assert.NotEmpty(t, names, "%s names no test", id)
		for _, name := range names {
			assert.NotEmpty(t, tests[name[1]], "%s names %s, which does not exist", id, name[1])
			isQuoted = isQuoted || slices.ContainsFunc(tests[name[1]], func(file string) bool { return slices.Contains(quoted[id], file) })
		}
		assert.True(t, isQuoted, "no file with a test that %s names quotes it", id)
	}
	for id, files := range quoted {
		assert.True(t, defined[id], "%s is quoted in %s and not in docs/checks.md", id, files[0])
	}
}
