module github.com/go-idem/idem/examples/routers

go 1.26.0

replace github.com/go-idem/idem => ../..

require (
	github.com/danielgtaylor/huma/v2 v2.37.2
	github.com/go-chi/chi/v5 v5.5.0
	github.com/go-idem/idem v0.0.0-00010101000000-000000000000
	github.com/gorilla/mux v1.8.1
	github.com/stretchr/testify v1.12.1
)

require go.yaml.in/yaml/v3 v3.0.5 // indirect
