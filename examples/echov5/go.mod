module github.com/go-idem/idem/examples/echov5

go 1.26.0

replace (
	github.com/go-idem/idem => ../..
	github.com/go-idem/idem/adapters/echov5 => ../../adapters/echov5
)

require (
	github.com/go-idem/idem v0.0.0
	github.com/go-idem/idem/adapters/echov5 v0.0.0
	github.com/labstack/echo/v5 v5.4.4
	github.com/redis/go-redis/v9 v9.23.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
	golang.org/x/time v0.15.0 // indirect
)
