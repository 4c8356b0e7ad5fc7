export * from './index.js';
import holdfast = require('./index.js');
export default holdfast;
