package report

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func committed(t *testing.T) Results {
	r, err := Load("../../results.json")
	require.NoError(t, err)
	return r
}

func TestTheCommittedReportIsRenderedFromTheCommittedResults(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, committed(t).Render(dir))
	for _, name := range []string{"PERFORMANCE.md", "performance-request.svg", "performance-redis.svg", "performance-memory.svg"} {
		rendered, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		page, err := os.ReadFile("../../../docs/" + name)
		require.NoError(t, err)
		assert.True(t, string(rendered) == string(page), "docs/%s is stale: go -C bench run . -render", name)
		assert.NotContains(t, string(rendered), "NaN")
		assert.NotContains(t, string(rendered), "%!")
	}
}

func TestTheReportIsShort(t *testing.T) {
	page, err := committed(t).page()
	require.NoError(t, err)
	assert.LessOrEqual(t, strings.Count(page, "\n"), 200)
}

func TestResultsThatLackAFigureAreNotRendered(t *testing.T) {
	for _, part := range []string{"loads", "duels", "newer", "allocations", "scripts", "commands", "pipelines", "live", "memory", "codecs"} {
		r := committed(t)
		delete(r, part)
		assert.Error(t, r.Render(t.TempDir()), part)
	}
}

func TestResultsAreLoadedAsTheyWereSaved(t *testing.T) {
	file := filepath.Join(t.TempDir(), "results.json")
	r := committed(t)
	require.NoError(t, r.Save(file))
	again, err := Load(file)
	require.NoError(t, err)
	assert.Equal(t, r, again)
	want, err := os.ReadFile("../../results.json")
	require.NoError(t, err)
	got, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.True(t, string(want) == string(got), "the committed results are as Save writes them")
}

func TestAFigureIsFoundByPartRowAndName(t *testing.T) {
	r := Results{"speed": {Rows: []Row{
		{[]string{"a", "x"}, map[string]float64{"n": 1}}, {[]string{"a", "x", "y"}, map[string]float64{"n": 2}},
		{[]string{"b"}, map[string]float64{"n": 3}},
	}}}
	for i, names := range [][]string{{"speed", "a", "x", "n"}, {"speed", "a", "x", "y", "n"}, {"speed", "b", "n"}} {
		got, err := r.Figure(names...)
		require.NoError(t, err)
		assert.EqualValues(t, i+1, got)
	}
	for _, names := range [][]string{
		{"speed", "c", "n"}, {"speed", "a", "n"}, {"speed", "b", "m"}, {"size", "b", "n"},
	} {
		_, err := r.Figure(names...)
		assert.Error(t, err, names)
	}
	rows, err := r.Rows("speed", "a")
	require.NoError(t, err)
	assert.Len(t, rows, 2)
	_, err = r.Rows("size")
	assert.Error(t, err)
}

func TestAPictureIsWellFormed(t *testing.T) {
	c := chart{title: "a & b", series: []string{"x", "y"}, mark: 1, groups: []group{
		{"this & that", true, []float64{0.5, 1.5}}, {"other", false, []float64{0.1, 0.2}},
	}}
	svg := c.svg()
	decoder, bars := xml.NewDecoder(strings.NewReader(svg)), 0
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if start, ok := token.(xml.StartElement); ok && start.Name.Local == "rect" {
			bars++
		}
	}
	assert.Equal(t, 1+4+4, bars, "background, legend, values")
	assert.Contains(t, svg, "this &amp; that")
	assert.NotContains(t, svg, "%!")
	assert.Contains(t, svg, `width="440.0"`, "the longest fills the plot")
}

func TestNumbersAreReadable(t *testing.T) {
	assert.Equal(t, "0.15×", times(0.15))
	assert.Equal(t, "8.7", fixed(1, 8.66))
	assert.Equal(t, "999", grouped(999.0))
	assert.Equal(t, "1,234,567", grouped("1234567"))
}
