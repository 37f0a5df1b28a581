// An S3 server that keeps nothing of what it takes but its length: what is measured against it is
// the sender. Any bucket is there, any signature is right.
//
//   node null_sink.mjs PORT

import http from 'node:http';

const objects = new Map(); // length and ETag, by path
const uploads = new Map(); // length of each part, by upload id
// Not one of 32 digits: such an etag would be compared with the MD5 of what was sent.
const DIGEST = 'no-digest';

/** Reads a body to its end; its length without the framing of signed chunks. */
async function taken(request) {
  let bytes = 0;
  for await (const piece of request) bytes += piece.length;
  const decoded = request.headers['x-amz-decoded-content-length'];
  return decoded === undefined ? bytes : Number(decoded);
}

function put(path, query, bytes) {
  const upload = query.get('uploadId');
  if (upload === null) objects.set(path, { bytes, etag: `"${DIGEST}"` });
  else if (uploads.has(upload)) uploads.get(upload).set(query.get('partNumber'), bytes);
  else return { status: 404, body: '<Error><Code>NoSuchUpload</Code></Error>' };
  return { headers: { ETag: `"${DIGEST}"` } };
}

function post(path, query) {
  if (query.has('uploads')) {
    const id = crypto.randomUUID();
    uploads.set(id, new Map());
    return { body: `<InitiateMultipartUploadResult><UploadId>${id}</UploadId></InitiateMultipartUploadResult>` };
  }
  const parts = uploads.get(query.get('uploadId'));
  if (parts === undefined) return { status: 404, body: '<Error><Code>NoSuchUpload</Code></Error>' };
  uploads.delete(query.get('uploadId'));
  const etag = `"${DIGEST}-${parts.size}"`;
  objects.set(path, { bytes: [...parts.values()].reduce((sum, bytes) => sum + bytes, 0), etag });
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
    const bytes = await taken(request);
    const answer = {
      PUT: () => put(pathname, searchParams, bytes),
      POST: () => post(pathname, searchParams),
      HEAD: () => head(pathname),
      DELETE: () => remove(pathname, searchParams),
    }[request.method] ?? (() => ({ status: 501 }));
    const { status = 200, headers = {}, body = '' } = answer();
    response.writeHead(status, { 'Content-Length': Buffer.byteLength(body), ...headers }).end(body);
  })
  .listen(Number(process.argv[2]), '127.0.0.1');
