package idem

import (
	"errors"
	"net"
	"net/url"
	"slices"
	"strings"
)

// mayFollow reports whether a key that the server of from knows may be sent to the server of to.
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

// originOf returns the origin of u: scheme, host and port (RFC 6454). It is "" if u is nil.
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

// httpsOriginOf returns the origin to which a server redirects http on its default port if it insists on https. It is "" if from
// has another scheme or port.
func httpsOriginOf(from *url.URL) string {
	if from == nil || !strings.HasSuffix(originOf(from), ":80") || !strings.EqualFold(from.Scheme, "http") {
		return ""
	}
	return "https://" + net.JoinHostPort(strings.ToLower(from.Hostname()), "443")
}

// parseOrigin returns the origin that name spells, or an error if name is more or less than an origin.
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
