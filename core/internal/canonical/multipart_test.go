package canonical

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"mime"
	"mime/multipart"
	"net/textproto"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const formData = "multipart/form-data; boundary=b"

// lines ends each line as multipart bodies have it.
func lines(s ...string) string { return strings.Join(s, "\r\n") + "\r\n" }

var (
	fieldPart = lines(`--b`, `Content-Disposition: form-data; name="a"`, ``, `1`)
	filePart  = lines(`--b`, `Content-Disposition: form-data; name="f"; filename="x"`, `Content-Type: text/plain`, `X-Extra: 1`, ``, `2`)
	upload    = fieldPart + filePart + lines(`--b--`)
)

// Fingerprints outlive the process that made them: if this changes, so must the tag in front of it.
const uploadForm = "\x01\x13Content-Disposition\x13" + `form-data; name="a"` + "\x011" +
	"\x03\x13Content-Disposition\x21" + `form-data; name="f"; filename="x"` + "\x0cContent-Type\x0atext/plain\x07X-Extra\x011" + "\x012"

// FPR-12.
func TestMultipartThatSaysTheSameHasOneForm(t *testing.T) {
	for name, c := range map[string]struct{ contentType, body string }{
		"as it is":                      {formData, upload},
		"a new boundary":                {"multipart/form-data; boundary=new", strings.ReplaceAll(upload, "--b", "--new")},
		"a quoted boundary":             {`multipart/form-data; boundary="b"`, upload},
		"a boundary that needs quotes":  {`multipart/form-data; boundary="b: =?"`, strings.ReplaceAll(upload, "--b", "--b: =?")},
		"a content type in upper case":  {"Multipart/FORM-DATA; Boundary=b", upload},
		"something before the parts":    {formData, lines("before", "--other", "") + upload},
		"something behind the parts":    {formData, upload + lines("behind") + fieldPart + lines("--b--")},
		"no line end at the end":        {formData, strings.TrimSuffix(upload, "\r\n")},
		"an empty line at the end":      {formData, upload + "\r\n"},
		"space behind boundaries":       {formData, strings.ReplaceAll(upload, "--b\r", "--b \t\r")},
		"header lines in another order": {formData, strings.Replace(upload, "Content-Type: text/plain\r\nX-Extra: 1\r\n", "X-Extra: 1\r\nContent-Type: text/plain\r\n", 1)},
		"header names in another case":  {formData, strings.ReplaceAll(upload, "Content-", "content-")},
		"space around header values":    {formData, strings.ReplaceAll(upload, "X-Extra: 1", "X-Extra:  1 ")},
		"lines that end otherwise":      {formData, strings.ReplaceAll(upload, "\r\n", "\n")},
	} {
		t.Run(name, func(t *testing.T) {
			form, ok := Multipart(c.contentType, []byte(c.body))
			assert.True(t, ok)
			assert.Equal(t, uploadForm, string(form))
		})
	}
}

func TestMultipartThatSaysSomethingElseHasAnotherForm(t *testing.T) {
	end := lines("--b--")
	owners := map[string]string{uploadForm: "the upload"}
	for name, body := range map[string]string{
		"another name":                     strings.Replace(upload, `name="a"`, `name="b"`, 1),
		"another file name":                strings.Replace(upload, `filename="x"`, `filename="y"`, 1),
		"another directory":                strings.Replace(upload, `filename="x"`, `filename="d/x"`, 1),
		"no file name":                     strings.Replace(upload, `; filename="x"`, ``, 1),
		"an empty file name":               strings.Replace(upload, `filename="x"`, `filename=""`, 1),
		"another content type":             strings.Replace(upload, "text/plain", "text/html", 1),
		"no content type":                  strings.Replace(upload, "Content-Type: text/plain\r\n", "", 1),
		"another header value":             strings.Replace(upload, "X-Extra: 1", "X-Extra: 2", 1),
		"another header name":              strings.Replace(upload, "X-Extra: 1", "X-Other: 1", 1),
		"a header line twice":              strings.Replace(upload, "X-Extra: 1", "X-Extra: 1\r\nX-Extra: 2", 1),
		"a header line twice, other order": strings.Replace(upload, "X-Extra: 1", "X-Extra: 2\r\nX-Extra: 1", 1),
		"a header line in a part's bytes":  strings.Replace(upload, "X-Extra: 1\r\n\r\n", "\r\nX-Extra: 1\r\n\r\n", 1),
		"another byte":                     strings.Replace(upload, "\r\n1\r\n", "\r\n2\r\n", 1),
		"a byte more":                      strings.Replace(upload, "\r\n1\r\n", "\r\n11\r\n", 1),
		"a line end more":                  strings.Replace(upload, "\r\n1\r\n", "\r\n1\r\n\r\n", 1),
		"no bytes":                         strings.Replace(upload, "\r\n1\r\n", "\r\n\r\n", 1),
		"an encoding, and its bytes":       strings.Replace(upload, "\r\n\r\n1\r\n", "\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n=31\r\n", 1),
		"bytes that look encoded":          strings.Replace(upload, "\r\n1\r\n", "\r\n=31\r\n", 1),
		"parts in another order":           filePart + fieldPart + end,
		"the first part alone":             fieldPart + end,
		"the second part alone":            filePart + end,
		"the first part twice":             fieldPart + fieldPart + filePart + end,
		"a part in a part":                 strings.Replace(fieldPart, "1\r\n", "1\r\n"+strings.ReplaceAll(filePart, "--b", "--c"), 1) + end,
		"a part of nothing":                upload[:len(upload)-len(end)] + lines("--b", "", "") + end,
		"no part":                          end,
	} {
		t.Run(name, func(t *testing.T) {
			form, ok := Multipart(formData, []byte(body))
			assert.True(t, ok)
			assert.NotContains(t, owners, string(form), "%s", owners[string(form)])
			owners[string(form)] = name
		})
	}
}

func TestWhatIsNotPlainlyFormDataHasNoForm(t *testing.T) {
	for name, c := range map[string]struct{ contentType, body string }{
		"no content type":                {"", upload},
		"a content type that is none":    {"multipart/form-data; boundary", upload},
		"two boundaries":                 {formData + "; boundary=c", upload},
		"no boundary":                    {"multipart/form-data", upload},
		"an empty boundary":              {`multipart/form-data; boundary=""`, strings.ReplaceAll(upload, "--b", "--")},
		"another kind of multipart":      {"multipart/mixed; boundary=b", upload},
		"another kind of form":           {"application/x-www-form-urlencoded; boundary=b", upload},
		"another boundary":               {"multipart/form-data; boundary=other", upload},
		"no body":                        {formData, ""},
		"a header line without a colon":  {formData, strings.Replace(upload, "X-Extra: 1", "X-Extra", 1)},
		"a header line without a name":   {formData, strings.Replace(upload, "X-Extra: 1", ": 1", 1)},
		"a control in a header line":     {formData, strings.Replace(upload, "X-Extra: 1", "X-Extra: \x00", 1)},
		"a part without an empty line":   {formData, strings.Replace(upload, "\r\n\r\n1\r\n", "\r\n", 1)},
		"an end of another boundary":     {formData, strings.Replace(upload, "--b--", "--c--", 1)},
		"something behind a boundary":    {formData, strings.Replace(upload, "1\r\n--b\r\n", "1\r\n--b x\r\n", 1)},
		"more parts than there may be":   {formData, strings.Repeat(fieldPart, maxParts+1) + lines("--b--")},
		"an end that is only in a value": {formData, fieldPart + lines("--b", "X-Extra: --b--")},
	} {
		t.Run(name, func(t *testing.T) {
			form, ok := Multipart(c.contentType, []byte(c.body))
			assert.False(t, ok, "%.200q", form)
			assert.Empty(t, form)
		})
	}
}

func TestMultipartMayHaveAsManyPartsAsItMayHave(t *testing.T) {
	_, ok := Multipart(formData, []byte(strings.Repeat(fieldPart, maxParts)+lines("--b--")))
	assert.True(t, ok)
}

// Wherever a body is cut, what is left must not be taken for a smaller one.
func TestMultipartThatIsCutShortHasNoForm(t *testing.T) {
	for n := range len(upload) - len("\r\n") {
		form, ok := Multipart(formData, []byte(upload[:n]))
		assert.False(t, ok, "%q gives %q", upload[:n], form)
	}
}

func FuzzCanonicalMultipart(f *testing.F) {
	for i, body := range []string{
		upload, lines("before", "") + upload + "behind", strings.ReplaceAll(upload, "\r\n", "\n"), lines("--b--"), fieldPart, filePart + lines("--b"),
		lines("--b", "Content-Transfer-Encoding: quoted-printable", "", "=3D", "--b--"), lines("--b", "", "--b-", "--bb", "--b--"),
		lines("--b", "A: 1", " 2", "a: 3", "", "\r\n", "--b--"), lines("--b", "", "\r", "--b--"), lines("--b", "", "--b--"),
	} {
		f.Add(formData, body, uint64(i))
	}
	f.Add(`multipart/form-data; boundary="a b"`, strings.ReplaceAll(upload, "--b", "--a b"), uint64(0))
	f.Fuzz(func(t *testing.T, contentType, body string, seed uint64) {
		form, ok := Multipart(contentType, []byte(body))
		if !ok {
			assert.Empty(t, form)
			return
		}
		r := rand.New(rand.NewPCG(seed, 0))
		parts, boundary := readParts(t, contentType, body), fmt.Sprintf("%x", sha256.Sum256([]byte(body)))
		again, ok := Multipart("multipart/form-data; boundary="+boundary, writeParts(parts, boundary, r))
		assert.True(t, ok)
		assert.Equal(t, form, again, "the same parts behind another boundary")

		changed, ok := Multipart("multipart/form-data; boundary="+boundary, writeParts(changePart(parts, r), boundary, r))
		assert.True(t, ok)
		assert.NotEqual(t, form, changed, "a part that is not the same")
	})
}

type formPart struct {
	header textproto.MIMEHeader
	bytes  []byte
}

func readParts(t *testing.T, contentType, body string) (parts []formPart) {
	t.Helper()
	_, params, err := mime.ParseMediaType(contentType)
	require.NoError(t, err)
	for reader := multipart.NewReader(strings.NewReader(body), params["boundary"]); ; {
		part, err := reader.NextRawPart()
		if err == io.EOF {
			return parts
		}
		require.NoError(t, err)
		content, err := io.ReadAll(part)
		require.NoError(t, err)
		parts = append(parts, formPart{part.Header, content})
	}
}

// writeParts writes header lines in the order that chance gives their names.
func writeParts(parts []formPart, boundary string, r *rand.Rand) []byte {
	var b bytes.Buffer
	for _, part := range parts {
		fmt.Fprintf(&b, "--%s\r\n", boundary)
		names := slices.Sorted(maps.Keys(part.header))
		r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		for _, name := range names {
			for _, value := range part.header[name] {
				fmt.Fprintf(&b, "%s: %s\r\n", name, value)
			}
		}
		fmt.Fprintf(&b, "\r\n%s\r\n", part.bytes)
	}
	fmt.Fprintf(&b, "--%s--\r\n", boundary)
	return b.Bytes()
}

// changePart returns parts with one byte, one header line or one part that is not the same.
func changePart(parts []formPart, r *rand.Rand) []formPart {
	if len(parts) == 0 || r.IntN(4) == 0 {
		return append(slices.Clone(parts), formPart{})
	}
	parts = slices.Clone(parts)
	part := &parts[r.IntN(len(parts))]
	switch {
	case r.IntN(3) == 0:
		part.header = maps.Clone(part.header)
		part.header["X-More"] = append(slices.Clone(part.header["X-More"]), "1")
	case len(part.bytes) > 0 && r.IntN(2) == 0:
		part.bytes = slices.Clone(part.bytes)
		part.bytes[r.IntN(len(part.bytes))] ^= byte(1 + r.IntN(255))
	default:
		part.bytes = append(slices.Clone(part.bytes), byte(r.IntN(256)))
	}
	return parts
}
