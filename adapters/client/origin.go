package idem

import (
	"errors"
	"net"
	"net/url"
	"slices"
	"strings"
)

// mayFollow tells whether a key that was made for one place may be sent to another.
func (t *Transport) mayFollow(from, to *url.URL) bool {
	there := originOf(to)
	if there == originOf(from) || there == httpsOriginOf(from) {
		return true
	}
	return slices.ContainsFunc(t.Origins, func(name string) bool {
		origin, err := parseOrigin(name)
		return err == nil && origin == there
	})
}

// originOf is scheme, host and port (RFC 6454).
func originOf(u *url.URL) string {
	if u == nil {
		return ""
	}
	scheme, port := strings.ToLower(u.Scheme), u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[scheme]
	}
	return scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// httpsOriginOf is the origin that http leads to when a server insists on https; "" when there is none.
func httpsOriginOf(from *url.URL) string {
	if from == nil || !strings.HasSuffix(originOf(from), ":80") || !strings.EqualFold(from.Scheme, "http") {
		return ""
	}
	return "https://" + net.JoinHostPort(strings.ToLower(from.Hostname()), "443")
}

func parseOrigin(name string) (string, error) {
	u, err := url.Parse(name)
	if err != nil {
		return "", err
	}
	if u.Scheme == "" || u.Hostname() == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil {
		return "", errors.New("not an origin")
	}
	return originOf(u), nil
}
