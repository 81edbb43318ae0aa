// Package sfv parses those structured field values (RFC 9651) that this module needs: Strings with parameters, and tokens.
//
// The value of the field Idempotency-Key is such a String. Parameters are parsed in full although nothing uses them, because a
// value with malformed parameters is no valid value at all.
package sfv

import (
	"encoding/base64"
	"encoding/hex"
	"strings"
	"unicode/utf8"
)

// String parses a header field value that is a String with any number of parameters. It returns the text of the String without
// quotes and escapes. It checks the parameters and ignores them. It returns false if line is anything else, spaces around it
// included.
func String(line string) (string, bool) {
	s := scanner{rest: line}
	key, ok := s.str()
	return key, ok && s.parameters() && s.rest == ""
}

// scanner parses structured fields from the front of rest. Its methods return false when rest does not begin with what they
// parse. The value of rest is undefined then.
type scanner struct{ rest string }

// next removes c from the front.
func (s *scanner) next(c byte) bool {
	if s.rest == "" || s.rest[0] != c {
		return false
	}
	s.rest = s.rest[1:]
	return true
}

// take removes the longest run of bytes in class from the front, and returns it.
func (s *scanner) take(class func(c byte) bool) string {
	i := 0
	for i < len(s.rest) && class(s.rest[i]) {
		i++
	}
	taken := s.rest[:i]
	s.rest = s.rest[i:]
	return taken
}

// str parses a String: RFC 9651, section 4.2.5. A String without a backslash, the usual case, is a part of the line and is not
// copied.
func (s *scanner) str() (string, bool) {
	if !s.next('"') {
		return "", false
	}
	if plain := s.take(isUnescaped); s.next('"') {
		return plain, true
	} else {
		return s.escaped(plain)
	}
}

// escaped parses the rest of a String after its beginning plain. The rest begins with a backslash, or the String is malformed.
func (s *scanner) escaped(plain string) (string, bool) {
	var b strings.Builder
	b.WriteString(plain)
	for s.next('\\') {
		if s.rest == "" || s.rest[0] != '"' && s.rest[0] != '\\' {
			return "", false
		}
		b.WriteByte(s.rest[0])
		s.rest = s.rest[1:]
		b.WriteString(s.take(isUnescaped))
	}
	return b.String(), s.next('"')
}

// parameters parses any number of parameters: RFC 9651, section 4.2.3.2.
func (s *scanner) parameters() bool {
	for s.next(';') {
		s.take(func(c byte) bool { return c == ' ' })
		if s.rest == "" || !isLower(s.rest[0]) && s.rest[0] != '*' {
			return false
		}
		s.take(isParameterName)
		if s.next('=') && !s.bareItem() {
			return false
		}
	}
	return true
}

// bareItem parses a value of any type: RFC 9651, section 4.2.3.1. The first byte tells the type. A parameter cannot have a list
// or a dictionary as its value.
func (s *scanner) bareItem() bool {
	if s.rest == "" {
		return false
	}
	switch c := s.rest[0]; {
	case c == '"':
		_, ok := s.str()
		return ok
	case c == '-' || isDigit(c):
		_, ok := s.number()
		return ok
	case c == '*' || isAlpha(c):
		s.take(isTokenByte)
		return true
	case c == '?':
		return s.next('?') && (s.next('0') || s.next('1'))
	case c == ':':
		return s.next(':') && isBase64(s.take(isBase64Byte)) && s.next(':')
	case c == '@':
		s.next('@')
		integer, ok := s.number()
		return ok && integer
	case c == '%':
		return s.next('%') && s.displayString()
	}
	return false
}

// number parses an Integer or a Decimal, and reports which of them it was: RFC 9651, section 4.2.4. The RFC bounds the digits: 15
// in an Integer, and 12 before and 3 after the point of a Decimal.
func (s *scanner) number() (integer, ok bool) {
	s.next('-')
	whole := len(s.take(isDigit))
	if !s.next('.') {
		return true, whole >= 1 && whole <= 15
	}
	fraction := len(s.take(isDigit))
	return false, whole >= 1 && whole <= 12 && fraction >= 1 && fraction <= 3
}

// displayString parses a Display String after its '%': RFC 9651, section 4.2.10. Its escapes have lower-case digits, and its
// bytes are UTF-8 once the escapes are decoded.
func (s *scanner) displayString() bool {
	if !s.next('"') {
		return false
	}
	text := []byte(s.take(isDisplayByte))
	for s.next('%') {
		if len(s.rest) < 2 || strings.ToLower(s.rest[:2]) != s.rest[:2] {
			return false
		}
		octet, err := hex.DecodeString(s.rest[:2])
		if err != nil {
			return false
		}
		s.rest = s.rest[2:]
		text = append(append(text, octet...), s.take(isDisplayByte)...)
	}
	return s.next('"') && utf8.Valid(text)
}

// isBase64 reports whether s is base64. Padding may be missing, as RFC 9651, section 4.2.7, recommends to parsers.
func isBase64(s string) bool {
	_, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(s, "="))
	return err == nil
}

// The classes of bytes for scanner.take. All of them are ASCII; a byte of another character is in none, so it ends what is
// parsed.
func isDigit(c byte) bool       { return c >= '0' && c <= '9' }
func isLower(c byte) bool       { return c >= 'a' && c <= 'z' }
func isAlpha(c byte) bool       { return isLower(c) || c >= 'A' && c <= 'Z' }
func isUnescaped(c byte) bool   { return c >= ' ' && c < 0x7F && c != '"' && c != '\\' }
func isDisplayByte(c byte) bool { return c >= ' ' && c < 0x7F && c != '"' && c != '%' }
func isBase64Byte(c byte) bool  { return isAlpha(c) || isDigit(c) || strings.IndexByte("+/=", c) >= 0 }
func isParameterName(c byte) bool {
	return isLower(c) || isDigit(c) || strings.IndexByte("_-.*", c) >= 0
}

// isTokenChar reports whether c is a tchar of RFC 9110, section 5.6.2.
func isTokenChar(c byte) bool {
	return isAlpha(c) || isDigit(c) || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}

// isTokenByte reports whether c may be in a Token of RFC 9651, after its first byte.
func isTokenByte(c byte) bool { return isTokenChar(c) || c == ':' || c == '/' }

// IsToken reports whether s is a token of RFC 9110, section 5.6.2, as names of header fields are.
func IsToken(s string) bool {
	t := scanner{rest: s}
	return t.take(isTokenChar) != "" && t.rest == ""
}
