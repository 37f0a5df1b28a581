// An S3 server that keeps nothing of what it takes but its length and its MD5, which its etags tell
// like a store's do: what is measured against it is the sender, which compares them. Any bucket is
// there, any signature is right. With BENCH_ETAGS=zeros its etags only look like digests: then
// neither side computes any.
//
//   node null_sink.mjs PORT

import { createHash } from 'node:crypto';
import http from 'node:http';

const hasDigests = process.env.BENCH_ETAGS !== 'zeros';
const objects = new Map(); // length and etag, by path
const uploads = new Map(); // length and MD5 of each part, by upload id

/** The content of a body in signed chunks: `<hex length>;<extension>\r\n<content>\r\n`, the last empty. */
async function* unframed(body) {
  let line = '';
  let left = 0;
  for await (const piece of body) {
    for (let at = 0; at < piece.length; ) {
      if (left > 0) {
        const content = piece.subarray(at, at + left);
        yield content;
        [at, left] = [at + content.length, left - content.length];
        continue;
      }
      const end = piece.indexOf(10, at);
      line += piece.latin1Slice(at, end < 0 ? undefined : end);
      if (end < 0) break;
      at = end + 1;
      // The line break after a content is an empty line; trailers are no lengths.
      left = /^[0-9a-f]+(;|\r$)/i.test(line) ? parseInt(line, 16) : 0;
      line = '';
    }
  }
}

/** Reads a body to its end: its length and its MD5. */
async function taken(request) {
  const isFramed = request.headers['x-amz-decoded-content-length'] !== undefined;
  const md5 = createHash('md5');
  let bytes = 0;
  for await (const piece of isFramed ? unframed(request) : request) {
    bytes += piece.length;
    if (hasDigests) md5.update(piece);
  }
  return { bytes, md5: hasDigests ? md5.digest() : Buffer.alloc(16) };
}

function put(path, query, content) {
  const upload = query.get('uploadId');
  const etag = `"${content.md5.toString('hex')}"`;
  if (upload === null) objects.set(path, { bytes: content.bytes, etag });
  else if (uploads.has(upload)) uploads.get(upload).set(Number(query.get('partNumber')), content);
  else return { status: 404, body: '<Error><Code>NoSuchUpload</Code></Error>' };
  return { headers: { ETag: etag } };
}

function post(path, query) {
  if (query.has('uploads')) {
    const id = crypto.randomUUID();
    uploads.set(id, new Map());
    return { body: `<InitiateMultipartUploadResult><UploadId>${id}</UploadId></InitiateMultipartUploadResult>` };
  }
  const upload = uploads.get(query.get('uploadId'));
  if (upload === undefined) return { status: 404, body: '<Error><Code>NoSuchUpload</Code></Error>' };
  uploads.delete(query.get('uploadId'));
  const parts = [...upload].sort(([one], [other]) => one - other).map(([, part]) => part);
  const md5 = createHash('md5').update(Buffer.concat(parts.map((part) => part.md5))).digest('hex');
  const etag = `"${md5}-${parts.length}"`;
  objects.set(path, { bytes: parts.reduce((sum, { bytes }) => sum + bytes, 0), etag });
  return { body: `<CompleteMultipartUploadResult><ETag>${etag}</ETag></CompleteMultipartUploadResult>` };
}

function head(path) {
  const isBucket = path.split('/').filter(Boolean).length < 2;
  if (isBucket) return {};
  const object = objects.get(path);
  if (object === undefined) return { status: 404 };
  return { headers: { 'Content-Length': object.bytes, ETag: object.etag } };
}

function remove(path, query) {
  if (query.has('uploadId')) uploads.delete(query.get('uploadId'));
  else objects.delete(path);
  return { status: 204 };
}

http
  .createServer(async (request, response) => {
    const { pathname, searchParams } = new URL(request.url, 'http://sink');
    const content = await taken(request);
    const answer = {
      PUT: () => put(pathname, searchParams, content),
      POST: () => post(pathname, searchParams),
      HEAD: () => head(pathname),
      DELETE: () => remove(pathname, searchParams),
    }[request.method] ?? (() => ({ status: 501 }));
    const { status = 200, headers = {}, body = '' } = answer();
    response.writeHead(status, { 'Content-Length': Buffer.byteLength(body), ...headers }).end(body);
  })
  .listen(Number(process.argv[2]), '127.0.0.1');
