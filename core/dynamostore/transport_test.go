package dynamostore_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"hash/crc32"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

// transport sends the requests of a client. It is a network, or a server, that a test has changed.
type transport func(*http.Request) (*http.Response, error)

func (t transport) Do(r *http.Request) (*http.Response, error) { return t(r) }

// through lets a client send its requests through what change makes of the real transport.
func through(change func(send transport) transport) func(*dynamodb.Options) {
	return func(o *dynamodb.Options) {
		next := o.HTTPClient
		if next == nil {
			next = http.DefaultClient
		}
		o.HTTPClient = change(next.Do)
	}
}

// callOf returns the name of the call that a request makes, such as PutItem.
func callOf(r *http.Request) string {
	_, call, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	return call
}

// counter counts requests.
type counter struct{ n atomic.Int64 }

func (c *counter) counted() func(*dynamodb.Options) {
	return through(func(send transport) transport {
		return func(r *http.Request) (*http.Response, error) {
			c.n.Add(1)
			return send(r)
		}
	})
}

// shifted shifts the Date header field of responses.
func shifted(by *atomic.Int64) func(*dynamodb.Options) {
	return through(func(send transport) transport {
		return func(r *http.Request) (*http.Response, error) {
			response, err := send(r)
			if err == nil {
				date, _ := http.ParseTime(response.Header.Get("Date"))
				response.Header.Set("Date", date.Add(time.Duration(by.Load())).Format(http.TimeFormat))
			}
			return response, err
		}
	})
}

// refused makes a server refuse calls with an error of DynamoDB.
func refused(code, message string, calls ...string) func(*dynamodb.Options) {
	return through(func(send transport) transport {
		return func(r *http.Request) (*http.Response, error) {
			if len(calls) > 0 && !strings.Contains(strings.Join(calls, " "), callOf(r)) {
				return send(r)
			}
			return respond(400, map[string]string{"__type": "com.amazonaws.dynamodb.v20120810#" + code, "message": message}), nil
		}
	})
}

// respond returns a response with this value as its body.
func respond(status int, value any) *http.Response {
	body, _ := json.Marshal(value)
	return &http.Response{
		StatusCode: status, Body: io.NopCloser(bytes.NewReader(body)),
		Header: http.Header{
			"Date":        {time.Now().UTC().Format(http.TimeFormat)},
			"X-Amz-Crc32": {strconv.FormatUint(uint64(crc32.ChecksumIEEE(body)), 10)},
		},
	}
}

var errLost = errors.New("the network has lost the reply")

// losing loses the first reply to each write, which has taken effect.
func losing() func(*dynamodb.Options) {
	return through(func(send transport) transport {
		return func(r *http.Request) (*http.Response, error) {
			isWrite := callOf(r) == "PutItem" || callOf(r) == "UpdateItem"
			response, err := send(r)
			if err == nil && isWrite && strings.Contains(r.Header.Get("Amz-Sdk-Request"), "attempt=1") {
				_ = response.Body.Close()
				return nil, errLost
			}
			return response, err
		}
	})
}

// withItems makes a server of one that does not return the item when a condition is not met. It asks for the item, so another
// write may come between.
func withItems() func(*dynamodb.Options) {
	return through(func(send transport) transport {
		return func(r *http.Request) (*http.Response, error) {
			sent, err := read(&r.Body)
			if err != nil {
				return nil, err
			}
			response, err := send(r)
			wantsItem := bytes.Contains(sent, []byte(`"ReturnValuesOnConditionCheckFailure":"ALL_OLD"`))
			if err != nil || response.StatusCode != 400 || !wantsItem {
				return response, err
			}
			received, err := read(&response.Body)
			if err != nil || !bytes.Contains(received, []byte("ConditionalCheckFailedException")) {
				return response, err
			}
			return addItem(send, r, sent, received)
		}
	})
}

// read reads a body, which can be read again afterwards.
func read(body *io.ReadCloser) ([]byte, error) {
	whole, err := io.ReadAll(*body)
	*body = io.NopCloser(bytes.NewReader(whole))
	return whole, err
}

// addItem returns the response to a write whose condition was not met, with the item.
func addItem(send transport, r *http.Request, sent, received []byte) (*http.Response, error) {
	var write struct {
		TableName string
		Key, Item map[string]any
	}
	if err := json.Unmarshal(sent, &write); err != nil {
		return nil, err
	}
	if write.Key == nil {
		write.Key = map[string]any{"id": write.Item["id"]}
	}
	body, err := json.Marshal(map[string]any{"TableName": write.TableName, "Key": write.Key, "ConsistentRead": true})
	if err != nil {
		return nil, err
	}
	get := r.Clone(r.Context())
	get.Header.Set("X-Amz-Target", "DynamoDB_20120810.GetItem")
	get.Body, get.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	response, err := send(get)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	whole := map[string]any{}
	if err := json.Unmarshal(received, &whole); err != nil {
		return nil, err
	}
	if err := json.NewDecoder(response.Body).Decode(&whole); err != nil {
		return nil, err
	}
	return respond(400, whole), nil
}
