// Package migrate has the tests of docs/migrate.md: each moves live keys from another layer to idem.
package migrate
