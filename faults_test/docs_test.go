package faults_test

import (
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Every line of docs/faults.md names tests that exist, or says why there is none; and every test of this directory is in it.
func TestTheListOfFaultsNamesTestsThatExist(t *testing.T) {
	page, err := os.ReadFile("../docs/faults.md")
	require.NoError(t, err)
	list := exec.Command("grep", "-rhoE", "--include=*_test.go", `^func (\([a-z]+ \*?[A-Za-z]+\) )?(Test|Fuzz)[A-Za-z0-9]+`, "..")
	out, err := list.Output()
	require.NoError(t, err)
	exist := map[string]bool{}
	for _, name := range regexp.MustCompile(`\b(Test|Fuzz)\w+`).FindAllString(string(out), -1) {
		exist[name] = true
	}
	rows := regexp.MustCompile(`(?m)^\| (\d+) \|.*\|$`).FindAllString(string(page), -1)
	assert.GreaterOrEqual(t, len(rows), 64)
	for i, row := range rows {
		cells := strings.Split(row, "|")
		require.Len(t, cells, 6, row)
		assert.Equal(t, strconv.Itoa(i+1), strings.TrimSpace(cells[1]), "rows are numbered")
		names := regexp.MustCompile("`((Test|Fuzz)\\w+)").FindAllStringSubmatch(cells[4], -1)
		assert.True(t, len(names) > 0 || strings.Contains(cells[4], "none: "), "no test and no reason: %s", row)
		for _, name := range names {
			assert.True(t, exist[name[1]], "%s does not exist", name[1])
		}
	}
	out, err = exec.Command("grep", "-hoE", `^func Test[A-Za-z0-9]+`, "body_test.go", "failover_test.go", "hostile_test.go", "network_test.go", "process_test.go", "server_test.go", "versions_test.go").Output()
	require.NoError(t, err)
	for _, line := range strings.Fields(string(out)) {
		if strings.HasPrefix(line, "Test") && line != "TestMain" {
			assert.Contains(t, string(page), line)
		}
	}
}
