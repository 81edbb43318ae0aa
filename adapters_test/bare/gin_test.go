package bare

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gin-contrib/cors"
	"github.com/gin-contrib/gzip"
	"github.com/gin-contrib/requestid"
	"github.com/gin-contrib/secure"
	"github.com/gin-contrib/sessions"
	"github.com/gin-contrib/sessions/cookie"
	"github.com/gin-contrib/timeout"
	"github.com/gin-gonic/gin"

	idem "github.com/go-idem/idem/adapters/gin"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/internal/adaptertest/baretest"
)

// ginHandler is a handler of Gin under test.
type ginHandler struct {
	name string
	run  gin.HandlerFunc
}

// ginChains are the chains of Gin.
var ginChains = map[string][]gin.HandlerFunc{
	"none":    nil,
	"gzip":    {gzip.Gzip(gzip.BestSpeed)},
	"cors":    {cors.New(cors.Config{AllowAllOrigins: true, AllowMethods: []string{"POST"}, ExposeHeaders: []string{"X-Total"}, MaxAge: time.Hour})},
	"secure":  {secure.New(secure.Config{FrameDeny: true, ContentTypeNosniff: true, BrowserXssFilter: true, STSSeconds: 60})},
	"timeout": {timeout.New(timeout.WithTimeout(baretest.Patience))},
	"requestid": {requestid.New(requestid.WithGenerator(func() string {
		return "fixed"
	}))},
	"sessions": {sessions.Sessions("session", cookie.NewStore([]byte("secret"))), func(c *gin.Context) {
		s := sessions.Default(c)
		s.Set("a", "b")
		_ = s.Save()
	}},
	"recovery": {gin.RecoveryWithWriter(io.Discard)},
	"logger":   {gin.LoggerWithWriter(io.Discard)},
	"errors": {func(c *gin.Context) {
		c.Next()
		if len(c.Errors) > 0 && !c.Writer.Written() {
			c.JSON(http.StatusTeapot, gin.H{"errors": c.Errors.Errors()})
		}
	}},
	"fields": {func(c *gin.Context) {
		for _, name := range []string{"X-A", "Content-Type", "Vary", "Cache-Control"} {
			c.Header(name, "text/outer")
		}
	}},
	"all": {
		gin.RecoveryWithWriter(io.Discard), requestid.New(requestid.WithGenerator(func() string { return "fixed" })),
		cors.Default(), secure.New(secure.Config{FrameDeny: true}), gzip.Gzip(gzip.DefaultCompression),
	},
}

func TestGin(t *testing.T) {
	gin.SetMode(gin.ReleaseMode)
	gin.DefaultErrorWriter = io.Discard
	var all []ginHandler
	for _, h := range handlers() {
		all = append(all, ginHandler{h.name, func(c *gin.Context) { h.run(c.Writer, c.Request) }})
	}
	all = append(all, ginHandlers()...)
	f := baretest.Framework{Name: "gin", Chains: sortedKeys(ginChains)}
	for _, h := range all {
		f.Handlers = append(f.Handlers, h.name)
	}
	f.Start = func(t *testing.T, chain string, where baretest.Place, e *core.Engine, l net.Listener) {
		router := gin.New()
		if where == baretest.Outside {
			router.Use(idem.Gin(e))
		}
		router.Use(ginChains[chain]...)
		if where == baretest.Inside {
			router.Use(idem.Gin(e))
		}
		for i, h := range all {
			for _, method := range []string{http.MethodPost, http.MethodHead, http.MethodOptions} {
				router.Handle(method, "/"+strconv.Itoa(i), h.run)
			}
		}
		serve(t, l, router)
	}
	f.Compare(t)
}

// ginHandlers use the methods of gin.Context.
func ginHandlers() []ginHandler {
	json := gin.H{"id": 1, "text": "<b>"}
	return []ginHandler{
		{"c.JSON", func(c *gin.Context) { c.JSON(201, json) }},
		{"c.JSON twice", func(c *gin.Context) { c.JSON(201, json); c.JSON(400, json) }},
		{"c.JSON of 204", func(c *gin.Context) { c.JSON(204, json) }},
		{"c.JSON of -1", func(c *gin.Context) { c.JSON(-1, json) }},
		{"c.JSON long", func(c *gin.Context) { c.JSON(200, letters(9000)) }},
		{"c.IndentedJSON", func(c *gin.Context) { c.IndentedJSON(200, json) }},
		{"c.PureJSON", func(c *gin.Context) { c.PureJSON(200, json) }},
		{"c.SecureJSON", func(c *gin.Context) { c.SecureJSON(200, []int{1}) }},
		{"c.XML", func(c *gin.Context) { c.XML(200, baretest.XMLValue{A: 1}) }},
		{"c.YAML", func(c *gin.Context) { c.YAML(200, json) }},
		{"c.String", func(c *gin.Context) { c.String(200, "a %d", 1) }},
		{"c.Data", func(c *gin.Context) { c.Data(200, "image/png", []byte("\x89PNG")) }},
		{"c.Data empty", func(c *gin.Context) { c.Data(200, "image/png", nil) }},
		{"c.DataFromReader", func(c *gin.Context) {
			c.DataFromReader(200, 3000, "text/x", onlyReader{strings.NewReader(letters(3000))}, map[string]string{"X-A": "1"})
		}},
		{"c.DataFromReader of unknown length", func(c *gin.Context) {
			c.DataFromReader(200, -1, "text/x", onlyReader{strings.NewReader(letters(3000))}, nil)
		}},
		{"c.Redirect", func(c *gin.Context) { c.Redirect(303, "/new") }},
		{"c.File", func(c *gin.Context) { c.File("testdata/file.txt") }},
		{"c.FileAttachment", func(c *gin.Context) { c.FileAttachment("testdata/file.txt", "a b.txt") }},
		{"c.FileFromFS", func(c *gin.Context) { c.FileFromFS("/data.bin", http.FS(files)) }},
		{"c.File missing", func(c *gin.Context) { c.File("testdata/missing") }},
		{"c.Stream", func(c *gin.Context) {
			n := 0
			c.Stream(func(w io.Writer) bool { n++; text(w, strconv.Itoa(n)); return n < 4 })
		}},
		{"c.SSEvent", func(c *gin.Context) { c.SSEvent("message", "hello"); c.Writer.Flush(); c.SSEvent("message", json) }},
		{"c.Status", func(c *gin.Context) { c.Status(202) }},
		{"c.Status twice", func(c *gin.Context) { c.Status(202); c.Status(404) }},
		{"c.Status of 204", func(c *gin.Context) { c.Status(204) }},
		{"c.Status of 102", func(c *gin.Context) { c.Status(102) }},
		{"c.Status of 103, then c.JSON", func(c *gin.Context) {
			c.Header("Link", "</a.css>; rel=preload")
			c.Status(103)
			c.Writer.WriteHeaderNow()
			c.Header("X-Late", "1")
			c.JSON(201, json)
		}},
		{"c.Writer state after 103", func(c *gin.Context) {
			c.Status(103)
			c.Writer.WriteHeaderNow()
			c.Writer.WriteHeaderNow()
			c.String(404, "%v %d %d", c.Writer.Written(), c.Writer.Status(), c.Writer.Size())
		}},
		{"c.Error after 103", func(c *gin.Context) { c.Status(103); c.Writer.WriteHeaderNow(); _ = c.Error(errors.New("x")) }},
		{"c.Status then field", func(c *gin.Context) { c.Status(202); c.Header("X-A", "1") }},
		{"c.Abort", func(c *gin.Context) { c.Abort() }},
		{"c.AbortWithStatus", func(c *gin.Context) { c.AbortWithStatus(403) }},
		{"c.AbortWithStatusJSON", func(c *gin.Context) { c.AbortWithStatusJSON(422, json) }},
		{"c.AbortWithError", func(c *gin.Context) { _ = c.AbortWithError(400, errors.New("x")) }},
		{"c.Error", func(c *gin.Context) { _ = c.Error(errors.New("x")) }},
		{"c.Error and field", func(c *gin.Context) { c.Header("X-A", "1"); _ = c.Error(errors.New("x")) }},
		{"c.Error and marker", func(c *gin.Context) { c.Header(baretest.Marker, "true"); _ = c.Error(errors.New("x")) }},
		{"c.Error and c.Status", func(c *gin.Context) { c.Status(409); _ = c.Error(errors.New("x")) }},
		{"c.Error and c.JSON", func(c *gin.Context) { c.JSON(409, json); _ = c.Error(errors.New("x")) }},
		{"c.Negotiate", func(c *gin.Context) {
			c.Negotiate(200, gin.Negotiate{Offered: []string{gin.MIMEJSON, gin.MIMEXML}, Data: json})
		}},
		{"c.NegotiateFormat", func(c *gin.Context) { c.Header("Vary", "Accept"); c.String(200, c.NegotiateFormat("text/html", "a/b")) }},
		{"c.SetCookie", func(c *gin.Context) { c.SetCookie("a", "b", 60, "/", "", true, true); c.String(200, "x") }},
		{"c.Header removed", func(c *gin.Context) {
			c.Header("X-A", "1")
			c.Header("X-A", "")
			c.Header("Vary", "")
			c.String(200, "x")
		}},
		{"c.Writer state", func(c *gin.Context) {
			c.Status(201)
			before := c.Writer.Written()
			c.Writer.WriteHeaderNow()
			c.String(200, "%v %v %d %d", before, c.Writer.Written(), c.Writer.Status(), c.Writer.Size())
		}},
		{"c.Writer.WriteString", func(c *gin.Context) { _, _ = c.Writer.WriteString("x") }},
		{"c.Bind fails", func(c *gin.Context) {
			var body struct{ A int }
			_ = c.BindJSON(&body)
		}},
		{"c.Copy", func(c *gin.Context) { c.Copy(); c.String(200, "x") }},
		{"io.Copy to c.Writer", func(c *gin.Context) { _, _ = io.Copy(c.Writer, bytes.NewReader([]byte(letters(3000)))) }},
	}
}
