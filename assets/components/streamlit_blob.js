// Bytes for a view: a line of JSON (name, digest), then what `openBlob` reads.
export default async function ({ data }) {
  const end = data.indexOf(10);
  const { name, digest } = JSON.parse(new TextDecoder().decode(data.subarray(0, end)));
  const bytes = data.slice(end + 1);
  keep(name, digest, bytes, await openBlob(bytes));
}
