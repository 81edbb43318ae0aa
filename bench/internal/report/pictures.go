package report

import "errors"

// pictures returns the pictures of the report by the names of their files.
func (r Results) pictures() (map[string]string, error) {
	request := chart{
		title:  "Requests per second, as a share of the bare handler's",
		series: []string{"new keys", "replays"}, mark: 1,
	}
	redis := chart{
		title:  "Time of a busy Redis for a call, with a response of 512 bytes",
		series: []string{"claim", "outcome", "replay"}, unit: " µs",
	}
	memory := chart{
		title:  "Bytes of a completed record in Redis, as a share of two keys with JSON",
		series: []string{"plain", "zstd", "zstd with a dictionary"}, mark: 1,
	}
	var errs []error
	for _, s := range shown() {
		label, isOwn := s.Framework+": "+s.Name, s.Beside == ""
		errs = append(errs, request.add(r, label, isOwn, []string{"loads", s.Framework, "all new keys", s.Name, "of_bare"},
			[]string{"loads", s.Framework, "all replays", s.Name, "of_bare"}))
	}
	for i, layout := range []string{"this library", "two keys with JSON"} {
		row := func(figure string) []string { return []string{"scripts", "512 B", layout, figure} }
		errs = append(errs, redis.add(r, layout, i == 0, row("begin_busy_us"), row("complete_busy_us"), row("replay_busy_us")))
	}
	for _, size := range []string{"512 B", "1 KiB", "4 KiB", "64 KiB"} {
		row := func(form string) []string { return []string{"codecs", size, form, "of_pair"} }
		errs = append(errs, memory.add(r, "response of "+size, true, row("plain"), row("zstd"), row("zstd with a dictionary")))
	}
	return map[string]string{
		"performance-request.svg": request.svg(), "performance-redis.svg": redis.svg(), "performance-memory.svg": memory.svg(),
	}, errors.Join(errs...)
}

// add adds a group with figures of the results.
func (c *chart) add(r Results, label string, isOwn bool, figures ...[]string) error {
	g := group{label: label, own: isOwn}
	for _, names := range figures {
		value, err := r.Figure(names...)
		if err != nil {
			return err
		}
		g.values = append(g.values, value)
	}
	c.groups = append(c.groups, g)
	return nil
}
