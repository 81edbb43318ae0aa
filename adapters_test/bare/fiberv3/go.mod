module github.com/go-idem/idem/adapters_test/bare/fiberv3

go 1.26.0

require (
	github.com/go-idem/idem v0.0.0
	github.com/gofiber/fiber/v3 v3.1.0
)

require (
	github.com/stretchr/testify v1.12.1 // indirect
	github.com/valyala/fasthttp v1.69.0 // indirect
)

require (
	github.com/andybalholm/brotli v1.2.0 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/go-idem/idem/adapters/fiberv3 v0.0.0-00010101000000-000000000000
	github.com/gofiber/schema v1.7.0 // indirect
	github.com/gofiber/utils/v2 v2.0.2 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/klauspost/compress v1.20.3 // indirect
	github.com/mattn/go-colorable v0.1.15 // indirect
	github.com/mattn/go-isatty v0.0.22 // indirect
	github.com/philhofer/fwd v1.2.0 // indirect
	github.com/redis/go-redis/v9 v9.23.0 // indirect
	github.com/tinylib/msgp v1.6.3 // indirect
	github.com/valyala/bytebufferpool v1.0.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/crypto v0.53.0 // indirect
	golang.org/x/net v0.56.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
	golang.org/x/text v0.40.0 // indirect
)

replace github.com/go-idem/idem => ../../..

replace github.com/go-idem/idem/adapters/fiberv3 => ../../../adapters/fiberv3
