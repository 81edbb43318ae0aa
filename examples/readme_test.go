package examples_test

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/memstore"
)

// section returns the text of the README under a heading of the second level.
func section(t *testing.T, name string) string {
	t.Helper()
	_, text, found := strings.Cut(readFile(t, "../README.md"), "\n## "+name+"\n")
	require.True(t, found, name)
	text, _, _ = strings.Cut(text, "\n## ")
	return text
}

// A newcomer reads the README in a few minutes; everything else is in docs.
func TestTheREADMEIsShort(t *testing.T) {
	assert.LessOrEqual(t, strings.Count(readFile(t, "../README.md"), "\n"), 180)
}

// The program of the README has the configuration of the examples.
func TestTheREADMEShowsTheConfigurationOfTheExamples(t *testing.T) {
	program := goBlock.FindString(section(t, "In your service"))
	require.Contains(t, program, "package main")
	for _, framework := range services {
		source := readFile(t, framework+"/main.go")
		lines := regexp.MustCompile(`(?m)^\t\t(Scope|Key|Lease): .*?,( +//|$)`).FindAllString(source, -1)
		assert.Len(t, lines, 3, framework)
		for _, line := range lines {
			assert.Contains(t, program, strings.TrimSpace(strings.TrimSuffix(line, "//")), framework)
		}
		assert.NotContains(t, source, "SingleTenant")
	}
}

// The table of frameworks has one row for each, with the major version that go.mod has, and what it shows compiles.
func TestTheREADMEShowsHowToUseEachFramework(t *testing.T) {
	rows := regexp.MustCompile("(?m)^\\| (.+) \\| `adapters/(\\w+)` \\| `(.+)` \\| `(.+)` \\|$").FindAllStringSubmatch(section(t, "In your service"), -1)
	require.Len(t, rows, len(frameworks))
	module := readFile(t, "../go.mod")
	for i, row := range rows {
		assert.Equal(t, frameworks[i], row[2])
		if _, version, found := strings.Cut(row[1], " v"); found {
			assert.Regexp(t, row[2]+`(/v\d+)? v`+version+`\.`, module)
		}
		t.Run(row[2], func(t *testing.T) { compile(t, snippet(row[3]+"\n"+row[4], row[2])) })
	}
}

// The README names the adapters for other majors of these frameworks, in modules of their own.
func TestTheREADMENamesTheOtherMajors(t *testing.T) {
	named := regexp.MustCompile("`adapters/([a-z]+)v(\\d+)`").FindAllStringSubmatch(section(t, "In your service"), -1)
	require.NotEmpty(t, named)
	for _, name := range named {
		framework, major := name[1], name[2]
		assert.Contains(t, frameworks, framework)
		assert.Regexp(t, framework+"/v"+major+" v"+major+`\.`, readFile(t, "../adapters/"+framework+"v"+major+"/go.mod"))
	}
}

// The defaults in the table of options are those of an engine that is given none.
func TestTheREADMETellsTheDefaultsOfOptions(t *testing.T) {
	engine, err := core.New(core.Config{Store: memstore.New(), Scope: core.SingleTenant})
	require.NoError(t, err)
	config := reflect.ValueOf(engine.Config())
	inWords := map[string]string{ // of functions, which cannot be compared
		"Key.Accept": "any key", "Lease.OnUnknown": "run again", "Keep.Policy": "`DefaultPolicy`",
	}
	rows := regexp.MustCompile(`(?m)^\| (.+) \| (.+) \| .+ \|$`).FindAllStringSubmatch(section(t, "Options"), -1)
	options := 0
	for _, row := range rows[2:] { // behind the head
		names := regexp.MustCompile("`([\\w.]+)`").FindAllStringSubmatch(row[1], -1)
		defaults := strings.Split(row[2], ", ")
		if len(names) == 1 {
			defaults = []string{row[2]}
		}
		require.Len(t, defaults, len(names), row[0])
		for i, name := range names {
			options++
			value := config
			for field := range strings.SplitSeq(name[1], ".") {
				value = value.FieldByName(field)
				require.True(t, value.IsValid(), name[1])
			}
			want := fmt.Sprint(value.Interface())
			switch {
			case value.Kind() == reflect.Func:
				want = inWords[name[1]]
			case value.Kind() == reflect.Slice:
				want = strings.ReplaceAll(strings.Trim(want, "[]"), " ", ", ")
			case want == "1048576":
				want = "1 MiB"
			}
			assert.Equal(t, strings.TrimSuffix(want, "0m0s"), defaults[i], name[1])
		}
	}
	assert.Greater(t, options, 10)
}

// The table of stores says of each what docs/stores.md says, with fewer columns.
func TestTheREADMEComparesTheStoresAsTheirPageDoes(t *testing.T) {
	rowsOf := func(text string) map[string][]string {
		rows := map[string][]string{}
		for line := range strings.Lines(text) {
			cells := strings.Split(strings.Trim(line, "|\n "), " | ")
			if name := regexp.MustCompile("^\\[?(`\\w+store`)").FindStringSubmatch(cells[0]); name != nil && rows[name[1]] == nil {
				rows[name[1]] = cells
			}
		}
		return rows
	}
	short, long := rowsOf(section(t, "Stores, and running it")), rowsOf(readFile(t, "../docs/stores.md"))
	assert.Len(t, short, 5)
	assert.Len(t, long, len(short))
	for name, cells := range short {
		page := long[name]
		require.Len(t, page, 7, name)
		assert.Equal(t, page[1:4], cells[1:4], name)
		median := regexp.MustCompile(`^[\d,]*\d`)
		times := fmt.Sprintf("%s µs, %s µs", median.FindString(page[5]), median.FindString(page[6]))
		if page[5] == page[6] {
			times = page[5] // not measured
		}
		assert.Equal(t, times, cells[4], name)
	}
}

var (
	session = regexp.MustCompile("(?s)```console\n(.*?)```")
	command = regexp.MustCompile(`(?m)^\$ ((?:.*\\\n)*.*)\n((?:[^$\n].*\n)*)`)
)

// The commands of the README's two minutes, word for word, write what it says that they write.
func (b binaries) readme(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("no curl")
	}
	sessions := session.FindAllStringSubmatch(section(t, "Two minutes"), -1)
	require.Len(t, sessions, 2)
	assert.Contains(t, sessions[0][1], "$ go run ./examples/http ")
	s := b.start(t, "http", noRedis(t))
	commands := command.FindAllStringSubmatch(sessions[1][1], -1)
	require.Len(t, commands, 5)
	function := strings.ReplaceAll(commands[0][1], "localhost:8080", s.url)
	id, ids := "", regexp.MustCompile(`[A-Z0-9]{26}`)
	for _, c := range commands[1:] {
		out, err := exec.Command("sh", "-c", function+"\n"+strings.ReplaceAll(c[1], "localhost:8080", s.url)).Output()
		require.NoError(t, err, c[1])
		for _, made := range ids.FindAllString(string(out), -1) {
			id = cmp.Or(id, made)
			assert.Equal(t, id, made, "there is one payment")
		}
		written := strings.Split(strings.ReplaceAll(string(out), "\r\n", "\n"), "\n")
		for line := range strings.Lines(c[2]) {
			assert.Contains(t, written, ids.ReplaceAllString(strings.TrimSuffix(line, "\n"), id), c[1])
		}
		assert.Equal(t, strings.Contains(c[2], marker), strings.Contains(string(out), marker), "a marker is shown: %s", c[1])
	}
	require.NotEmpty(t, id)
	statuses := regexp.MustCompile(`(?m)^HTTP/1.1 (\d+)`).FindAllStringSubmatch(sessions[1][1], -1)
	require.Len(t, statuses, 3)
	assert.Equal(t, []string{"201", "201", "422"}, []string{statuses[0][1], statuses[1][1], statuses[2][1]})
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(b)
}
