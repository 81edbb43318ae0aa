package rpc

// What the tests of the package use, which need its schema from rpctest.
var (
	Encode        = encode
	Decode        = decode
	ProblemCodes  = problemCodes
	ProblemStatus = problemStatus
)
