package plan

import (
	"encoding/xml"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ends returns the right ends of all bars of an SVG, which must be well-formed.
func ends(t *testing.T, svg string) (ends []float64) {
	t.Helper()
	for decoder := xml.NewDecoder(strings.NewReader(svg)); ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return ends
		}
		require.NoError(t, err)
		element, isStart := token.(xml.StartElement)
		if !isStart || element.Name.Local != "rect" || element.Attr[0].Name.Local != "x" {
			continue
		}
		x, err := strconv.ParseFloat(element.Attr[0].Value, 64)
		require.NoError(t, err)
		width, err := strconv.ParseFloat(element.Attr[2].Value, 64)
		require.NoError(t, err)
		assert.GreaterOrEqual(t, width, 0.0)
		ends = append(ends, x+width)
	}
}

func TestAPictureShowsEachMasterAndWhatALostOneCosts(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Cluster)
		bars   int // four for each master, and those of the loss
		want   []string
		not    string
	}{
		{"three masters", func(*Cluster) {}, 4*3 + 4,
			[]string{">node 1<", ">node 3<", "CPU, limit 50%", "memory, limit 1.074 GB", "1s, until a replica is elected"}, "less busy"},
		{"more masters than fit", func(c *Cluster) { c.Nodes = 40 }, 4*16 + 4, []string{"and 24 more, which are less busy"}, "40 more"},
		{"without full coverage", func(c *Cluster) { c.Outage.Partial = true }, 4*3 + 4, []string{">none<"}, "is elected"},
		{"waits for replicas", func(c *Cluster) { c.Wait = true }, 4*3 + 4, []string{"No record is lost"}, "are lost"},
		{"a reckoned outage", func(c *Cluster) { c.Outage.Away = 0 }, 4*3 + 4, []string{"15.5s to 25.5s"}, "NaN"},
		{"an outage of no time", func(c *Cluster) { c.Outage.Away = time.Nanosecond }, 4*3 + 4, []string{"0s, 0 at most"}, "NaN"},
		{"beyond every limit", func(c *Cluster) { c.Busy, c.Memory = 0.01, 1<<20 }, 4*3 + 4, []string{"CPU, limit 1%"}, "NaN"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cluster := planned(100_000)
			c.change(&cluster)
			svg := cluster.Picture()
			bars := ends(t, svg)
			assert.Len(t, bars, c.bars)
			for _, end := range bars {
				assert.Less(t, end, float64(pictureWidth))
			}
			for _, want := range c.want {
				assert.Contains(t, svg, want)
			}
			assert.NotContains(t, svg, c.not)
			assert.Equal(t, svg, cluster.Picture(), "one seed gives one picture")
		})
	}
}

func TestAnAxisHasSomeNumbers(t *testing.T) {
	for _, end := range []time.Duration{time.Second, 7300 * time.Millisecond, 40 * time.Second, time.Minute, time.Hour} {
		assert.GreaterOrEqual(t, end/tickOf(end), time.Duration(4), end)
		assert.LessOrEqual(t, end/tickOf(end), time.Duration(10), end)
	}
}
