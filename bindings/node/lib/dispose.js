// What `await using` calls. Node before 18.18 has no such symbol, and code that TypeScript made
// looks for it here.
'use strict';
if (!Symbol.asyncDispose)
    Object.defineProperty(Symbol, 'asyncDispose', { value: Symbol('Symbol.asyncDispose') });

module.exports = Symbol.asyncDispose;
