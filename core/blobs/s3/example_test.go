package s3_test

import (
	"log"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/go-idem/idem/core/blobs/s3"
	"github.com/go-idem/idem/core/driver"
)

func ExampleNew() {
	client, err := minio.New("s3.eu-central-1.amazonaws.com", &minio.Options{
		Creds:      credentials.NewIAM(""),
		Secure:     true,
		MaxRetries: 3,
	})
	if err != nil {
		log.Fatal(err)
	}
	store, err := s3.New(client, "outcomes", s3.Prefix("billing/"))
	if err != nil {
		log.Fatal(err)
	}
	var _ driver.Blobs = store
}
