package examples_test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The first lines of the README are those of the examples that it runs.
func TestTheREADMEShowsTheConfigurationOfTheExamples(t *testing.T) {
	readme := readFile(t, "../README.md")
	for _, framework := range frameworks {
		source := readFile(t, framework+"/main.go")
		for _, line := range regexp.MustCompile(`(?m)^\t\t(Scope|Key|Lease): .*?,( +//|$)`).FindAllString(source, -1) {
			line = strings.TrimSpace(strings.TrimSuffix(line, "//"))
			assert.Contains(t, readme[:strings.Index(readme, "## Two minutes")], line, framework)
		}
		assert.Contains(t, source, "core.UUIDKey")
		assert.NotContains(t, source, "SingleTenant")
	}
}

var readmeCommand = regexp.MustCompile(`(?m)^\$ (curl .*[^\\\n](?:\\\n.*)?)$`)

// The commands of the README's two minutes, word for word, do what it says that they do.
func (b binaries) readme(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("no curl")
	}
	s := b.start(t, "gin", noRedis(t))
	commands := readmeCommand.FindAllStringSubmatch(readFile(t, "../README.md"), -1)
	require.Len(t, commands, 4)
	var answers []string
	for _, command := range commands {
		out, err := exec.Command("sh", "-c", strings.ReplaceAll(command[1], "localhost:8080", s.url)).Output()
		require.NoError(t, err, command[1])
		answers = append(answers, string(out))
	}
	assert.Regexp(t, `(?s)^HTTP/1.1 201 Created.*"amount":100`, answers[0])
	assert.NotContains(t, answers[0], marker)
	assert.Regexp(t, `(?s)^HTTP/1.1 201 Created.*Idempotent-Replayed: true`, answers[1])
	_, body, _ := strings.Cut(answers[0], "\r\n\r\n")
	assert.Contains(t, answers[1], body)
	assert.JSONEq(t, "["+body+"]", answers[2])
	assert.Contains(t, readFile(t, "../README.md"), strings.TrimSpace(answers[3]), "the refusal, word for word")
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(b)
}
