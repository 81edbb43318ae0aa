package proxy

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"slices"
	"strconv"
	"strings"
)

// The header fields that tell the upstream about the run. Only the proxy sets them: what a client sends under these names is
// removed. A request that is not guarded has none of them.
const (
	FenceHeader     = "Idempotency-Fence"     // core.Run.Fence: grows with each run of the key
	OperationHeader = "Idempotency-Operation" // core.Run.Operation: the same in all runs of one operation
	AttemptHeader   = "Idempotency-Attempt"   // core.Run.Attempt: 1 for the first run
	TakeoverHeader  = "Idempotency-Takeover"  // core.Run.Takeover: "true" if an earlier run vanished, so that its effect may exist
)

// ownFields are the header fields that only the proxy sets.
var ownFields = []string{FenceHeader, OperationHeader, AttemptHeader, TakeoverHeader}

// forwardedFields say which hops a request has passed.
var forwardedFields = []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"}

// framingFields say where a request goes, and where its body ends. http.Transport sets them.
var framingFields = []string{"Host", "Content-Length", "Transfer-Encoding"}

// isOwnField reports whether only the proxy sets the header field with this name.
func isOwnField(name string) bool {
	return slices.ContainsFunc(ownFields, func(own string) bool { return isSameField(own, name) })
}

// isSameField reports whether an upstream can take one name for the other. CGI and its successors, such as WSGI, make no
// difference between a hyphen and an underscore.
func isSameField(a, b string) bool {
	return strings.EqualFold(strings.ReplaceAll(a, "_", "-"), strings.ReplaceAll(b, "_", "-"))
}

// rewrite implements ReverseProxy.Rewrite. ReverseProxy has removed the fields of one hop.
func (p *Proxy) rewrite(r *httputil.ProxyRequest) {
	r.SetURL(p.cfg.Upstream)
	r.Out.URL.RawQuery = r.In.URL.RawQuery // ReverseProxy removes parameters that it cannot parse.
	r.Out.Host = r.In.Host
	p.restoreFields(r)
	p.removeImpostors(r.Out.Header)
	p.setForwarded(r)
	x := exchangeOf(r.In.Context())
	if x.isRun {
		bufferBody(r)
	}
	if x.isRun && !x.run.Unprotected {
		r.Out.Header.Set(FenceHeader, strconv.FormatInt(x.run.Fence, 10))
		r.Out.Header.Set(OperationHeader, strconv.FormatInt(x.run.Operation, 10))
		r.Out.Header.Set(AttemptHeader, strconv.Itoa(x.run.Attempt))
		r.Out.Header.Set(TakeoverHeader, strconv.FormatBool(x.run.Takeover))
	}
	preventRepeats(r.Out.Header)
}

// readFields returns the names of the fields that say whose key a request has, and which.
func (p *Proxy) readFields() []string {
	names := append([]string{p.engine.Key.Header, p.cfg.ScopeHeader}, p.engine.Key.Aliases...)
	for i := range names {
		names[i] = http.CanonicalHeaderKey(names[i])
	}
	return names
}

// restoreFields restores the fields that the engine has read. A client can make a proxy remove any field by its name in
// Connection, and the upstream would then not know the caller or the key.
func (p *Proxy) restoreFields(r *httputil.ProxyRequest) {
	for _, name := range p.readFields() {
		if values, isThere := r.In.Header[name]; isThere {
			r.Out.Header[name] = values
		}
	}
}

// removeImpostors removes the fields that only the proxy sets, and those that an upstream can take for a field that the proxy has
// read or sets, such as X_Account_Id for X-Account-Id. With them a client could be another caller for the upstream than for the
// engine.
func (p *Proxy) removeImpostors(header http.Header) {
	known := slices.Concat(p.readFields(), forwardedFields, framingFields)
	for name := range header {
		isImpostor := func(field string) bool { return name != field && isSameField(field, name) }
		if isOwnField(name) || slices.ContainsFunc(known, isImpostor) {
			delete(header, name)
		}
	}
}

// preventRepeats writes the names of two fields in lower case. By their usual names http.Transport takes a request for one that
// can be repeated, and sends a request without a body again if the connection breaks.
func preventRepeats(header http.Header) {
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		if values, isThere := header[name]; isThere {
			delete(header, name)
			header[strings.ToLower(name)] = values
		}
	}
}

// bufferBody gives the outgoing request the body that the engine has read, in a form that http.Transport can send on another
// connection if it could write nothing to the first one.
func bufferBody(r *httputil.ProxyRequest) {
	if r.Out.Body == nil {
		return
	}
	body, err := io.ReadAll(r.Out.Body)
	if err != nil {
		return
	}
	r.Out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	r.Out.Body, _ = r.Out.GetBody()
	r.Out.ContentLength, r.Out.TransferEncoding, r.Out.Trailer = int64(len(body)), nil, nil
	if len(body) == 0 {
		r.Out.Body = http.NoBody
	}
}

// setForwarded says who the client is, and by which host and scheme it asked. ReverseProxy has removed what the client says about
// that.
func (p *Proxy) setForwarded(r *httputil.ProxyRequest) {
	if p.cfg.TrustForwarded {
		r.Out.Header["X-Forwarded-For"] = r.In.Header["X-Forwarded-For"]
	}
	r.SetXForwarded()
	hop := forwarded(r.In, r.Out.Header.Get("X-Forwarded-Proto"))
	if p.cfg.TrustForwarded {
		for _, name := range []string{"X-Forwarded-Host", "X-Forwarded-Proto"} {
			if values, isThere := r.In.Header[name]; isThere {
				r.Out.Header[name] = values
			}
		}
		hop = strings.Join(append(slices.Clone(r.In.Header["Forwarded"]), hop), ", ")
	}
	r.Out.Header.Set("Forwarded", hop)
}

// forwarded returns this hop as an element of Forwarded (RFC 7239).
func forwarded(in *http.Request, scheme string) string {
	client, _, err := net.SplitHostPort(in.RemoteAddr)
	switch {
	case err != nil:
		client = "unknown"
	case strings.Contains(client, ":"):
		client = `"[` + client + `]"`
	}
	return fmt.Sprintf("for=%s;host=%q;proto=%s", client, in.Host, scheme)
}
