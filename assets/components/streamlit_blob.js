// Bytes for a view: what `openBlob` reads.
export default async function ({ data }) {
  const { name, digest, bytes } = labelled(data);
  keep(name, digest, { bytes, panels: await openBlob(bytes) });
}
