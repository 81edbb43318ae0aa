package core

func canonicalJSON(body []byte) ([]byte, bool)                          { return nil, false }
func canonicalMultipart(contentType string, body []byte) ([]byte, bool) { return nil, false }
func canonicalQuery(raw string) (string, bool)                          { return "", false }
