// The addon, loaded when the first store is opened. HOLDFAST_ADDON names another build of it.
'use strict';
const path = require('path');
const { makeError } = require('./errors.js');

const native = require(process.env.HOLDFAST_ADDON ||
    path.join(__dirname, '..', 'build', 'holdfast.node'));
native.setup(makeError);
// Whatever ends the process (or the worker) in an orderly way: what is held is given back.
process.on('exit', () => native.end());

module.exports = native;
