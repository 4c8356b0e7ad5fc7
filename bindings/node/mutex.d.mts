export * from './mutex.js';
import mutex = require('./mutex.js');
export default mutex;
