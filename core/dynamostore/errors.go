package dynamostore

import (
	"errors"
	"fmt"
	"strings"

	"github.com/aws/smithy-go"
)

// ErrTooLarge says that something does not fit into an item of DynamoDB, which has at most 400 KB. For outcomes set Keep.Blobs
// and Keep.BlobsFrom of core.Config.
var ErrTooLarge = errors.New("dynamostore: too large for an item")

// What to do about an ErrTooLarge. No setting moves the results of steps elsewhere.
const (
	shortenOutcome = "set Keep.Blobs, and Keep.BlobsFrom or Keep.MaxBody to at most 300 KB"
	shortenSteps   = "make the results of the steps shorter: keep long ones elsewhere, and return where they are"
)

// tooLarge returns an ErrTooLarge that says what to do.
func tooLarge(what string, n, limit int, fix string) error {
	return fmt.Errorf("%w: %s has %d bytes, and there is room for %d: %s: %w", ErrTooLarge, what, n, limit, fix, errors.ErrUnsupported)
}

// advice says what to do about errors of DynamoDB, by their codes.
var advice = map[string]string{
	"ResourceNotFoundException": "the table is not in the Region of the client: create it, with CreateTable for example, or " +
		"correct the name or the Region",
	"UnrecognizedClientException":            "the credentials are not valid in this Region: correct them",
	"InvalidSignatureException":              "the credentials are not valid, or the clock of this machine is wrong: correct them",
	"ExpiredTokenException":                  "the credentials have expired: let the client renew them",
	"ProvisionedThroughputExceededException": "the table has too little capacity: raise it, or let it be billed by request",
	"ThrottlingException":                    "the table has too little capacity: raise it, or let it be billed by request",
	"RequestLimitExceeded":                   "the account has reached its limit: raise it",
}

// explain returns an error of DynamoDB with what to do about it.
func (s *Store) explain(err error) error {
	var api smithy.APIError
	if !errors.As(err, &api) {
		return fmt.Errorf("dynamostore: table %q: %w", s.table, err)
	}
	switch message := api.ErrorMessage(); {
	case strings.Contains(message, "Item size"):
		return fmt.Errorf("%w: table %q: %s; %s: %w: %w", ErrTooLarge, s.table, shortenOutcome, shortenSteps, errors.ErrUnsupported, err)
	case api.ErrorCode() == "AccessDeniedException":
		return fmt.Errorf("dynamostore: table %q, Region %q: let the credentials use dynamodb:%s on the table; the documentation of the "+
			"package lists what else they need: %w", s.table, s.client.Options().Region, operationOf(err), err)
	case api.ErrorCode() == "ValidationException" && strings.Contains(message, "key"):
		return fmt.Errorf("dynamostore: table %q: its primary key must be a partition key named id of type S, without a sort key: "+
			"create another table, with CreateTable for example: %w", s.table, err)
	case advice[api.ErrorCode()] != "":
		return fmt.Errorf("dynamostore: table %q, Region %q: %s: %w", s.table, s.client.Options().Region, advice[api.ErrorCode()], err)
	}
	return fmt.Errorf("dynamostore: table %q: %w", s.table, err)
}

// operationOf returns the name of the call that an error is about, which is also that of the permission for it.
func operationOf(err error) string {
	var operation *smithy.OperationError
	if errors.As(err, &operation) {
		return operation.Operation()
	}
	return "*"
}
