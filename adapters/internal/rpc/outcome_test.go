package rpc_test

import (
	"bytes"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/go-idem/idem/adapters/internal/rpc"
	"github.com/go-idem/idem/adapters/internal/rpc/rpctest"
	"github.com/go-idem/idem/core"
)

// Whatever an outcome holds, decoding it gives one definite reply, and encoding that reply gives the outcome's meaning again.
func FuzzDecode(f *testing.F) {
	message, err := proto.Marshal(&status.Status{Code: 5, Message: "gone"})
	require.NoError(f, err)
	f.Add("grpc-status", "5", "a", "1", message, false)
	f.Add("Grpc-Status", "0", "grpc-status", "5", []byte{10, 3, 10, 1, 'a'}, false)
	f.Add("a", "", "Content-Length", "7", []byte("hello"), false)
	f.Add("grpc-status", "-1", "b", "", []byte{}, true)
	f.Add("grpc-status", "99999999999", "b", "", []byte{0xff}, false)
	f.Fuzz(func(t *testing.T, name1, value1, name2, value2 string, body []byte, omitted bool) {
		stored := &core.Response{
			Status: 200, Omitted: omitted, Body: bytes.Clone(body),
			Header: []core.Field{{Name: name1, Value: value1}, {Name: name2, Value: value2}},
		}
		reply := rpc.Decode(stored, rpc.Schema(rpctest.Pay))
		assert.Equal(t, body, stored.Body)
		require.NotEqual(t, reply.Message == nil, reply.Status == nil, "a reply has a message, or a status")
		if reply.Status != nil {
			require.NotEqual(t, int32(code.Code_OK), reply.Status.Code)
		}
		again, err := rpc.Encode(reply)
		require.NoError(t, err)
		second := rpc.Decode(again, rpc.Schema(rpctest.Pay))
		assert.True(t, proto.Equal(reply.Status, second.Status))
		assert.True(t, slices.Equal(reply.Header, second.Header))
		assert.True(t, slices.Equal(reply.Trailer, second.Trailer))
		if reply.Message != nil {
			assert.True(t, proto.Equal(reply.Message.(proto.Message), second.Message.(proto.Message)))
		}
	})
}

func TestAnOutcomeWithTwoCodesIsRefused(t *testing.T) {
	stored, err := rpc.Encode(&rpc.Reply{Status: &status.Status{Code: 5}})
	require.NoError(t, err)
	stored.Header[0].Value = "7"
	reply := rpc.Decode(stored, rpc.Schema(rpctest.Pay))
	assert.Equal(t, int32(code.Code_UNAVAILABLE), reply.Status.Code)
}

// Each code of the engine that the page of problems lists has a status code. Those of the proxy are at the end of the page.
func TestEveryProblemHasACode(t *testing.T) {
	page, err := os.ReadFile("../../../docs/problems.md")
	require.NoError(t, err)
	ofEngine, _, _ := strings.Cut(string(page), "## The proxy")
	problems := regexp.MustCompile(`(?m)^### (.+)$`).FindAllStringSubmatch(ofEngine, -1)
	require.Greater(t, len(problems), 20)
	for _, p := range problems {
		assert.Contains(t, rpc.ProblemCodes, p[1])
	}
}

// A client that obeys a code alone does the right thing: those that ask for the same call again have a pause.
func TestRefusalsThatAskForTheSameCallHaveAPause(t *testing.T) {
	for problem, c := range rpc.ProblemCodes {
		s := rpc.ProblemStatus(core.Problem{Code: problem, RetryAfter: 7e9})
		assert.Equal(t, int32(c), s.Code)
		info, pause := &errdetails.ErrorInfo{}, &errdetails.RetryInfo{}
		require.Len(t, s.Details, 2)
		require.NoError(t, s.Details[0].UnmarshalTo(info))
		require.NoError(t, s.Details[1].UnmarshalTo(pause))
		assert.Regexp(t, `^[A-Z][A-Z0-9_]+[A-Z0-9]$`, info.Reason)
		assert.EqualValues(t, 7, pause.RetryDelay.Seconds)
	}
}

func TestACodeThatNobodyKnowsIsInternal(t *testing.T) {
	assert.Equal(t, int32(code.Code_INTERNAL), rpc.ProblemStatus(core.Problem{Code: "new"}).Code)
}
