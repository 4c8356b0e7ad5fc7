export * from './mutex.js';
